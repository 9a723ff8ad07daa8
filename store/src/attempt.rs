//! The index of attempts, which makes lists over a million attempts fast.
//!
//! Servers write the index run by run, after the commits that it follows ([`AttemptIndex::put_index`]). All of it can
//! be derived again from the states of runs, so nothing depends on it. The engine's ports have no attempts; the index
//! has a port of its own.
//!
//! Lists are filtered, sorted and counted over columns in the memory of each process, about 100 bytes per attempt.
//! Before each answer they are refreshed up to the last change (`attempt_clock`). So all replicas give the same answer,
//! and it contains everything stored at the time of the query. Only the rows of the page are read from the database.

mod bests;
pub(crate) mod boards;
pub(crate) mod columns;
pub(crate) mod cursor;
pub(crate) mod document;
pub(crate) mod labels;
pub(crate) mod list;
pub(crate) mod points;
pub(crate) mod refresh;
pub(crate) mod results;
pub(crate) mod rows;
pub(crate) mod sums;
pub(crate) mod tagged;
pub(crate) mod wanted;
pub(crate) mod write;

use std::ops::RangeInclusive;

use async_trait::async_trait;
use nightshift_engine::store::{RunRecord, StepRecord, StoreError};
use nightshift_engine::workflow::StoredState;
use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptPoints, AttemptQuery, AttemptRow, CampaignResults, ModelBoard, PointsQuery,
    SearchKind, SearchPage, SearchQuery, TaskBoard,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AttemptOutcome, Bound, Stage};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::task::Target;
use nightshift_protocol::time::TimestampMs;

/// Maximum length of a searched text, in bytes. The rest of a text is not searched.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// Maximum number of attempts per answer. Pages of lists are smaller; exports of whole tables use this size.
pub const MAX_ATTEMPT_ROWS: u32 = 5_000;

/// What the decisions of a run changed after a revision.
#[derive(Debug, Clone, PartialEq)]
pub struct RunChanges {
    /// The run, without its state.
    pub run: RunRecord,
    /// The head of the state, and the parts that were written after the revision. None before the first decision.
    pub state: Option<StoredState>,
}

/// A run to write into the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedRun {
    /// The run. A deleted run is skipped.
    pub run: RunId,
    /// The last event that is included. It does not replace entries written from a later event.
    pub seq: u64,
    /// The format of the entry. A later format replaces an earlier one.
    pub form: u32,
    /// Name of the task.
    pub task: String,
    /// Its hardware target.
    pub target: Target,
    /// Strategy of the run.
    pub strategy: String,
    /// All of its attempts.
    pub attempts: Vec<IndexedAttempt>,
    /// New and changed texts.
    pub documents: Vec<Document>,
}

/// An attempt to write into the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedAttempt {
    /// Number within the run.
    pub number: u32,
    /// The stage that wrote it.
    pub stage: Stage,
    /// The attempt it was derived from.
    pub parent: Option<u32>,
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// Whether it is the best one of its run.
    pub is_best: bool,
    /// Whether its speedup was confirmed.
    pub is_confirmed: bool,
    /// The published speedup.
    pub speedup: Option<Interval>,
    /// The speedup over the fastest baseline of the task, if that baseline is known.
    pub speedup_over_fastest: Option<Interval>,
    /// Median time of one call, in nanoseconds.
    pub candidate_median_ns: Option<f64>,
    /// Its reward.
    pub reward: Option<f64>,
    /// Sum of the judge's scores.
    pub rubric_total: Option<u32>,
    /// The bottleneck.
    pub bound: Option<Bound>,
    /// The critical issue.
    pub issue: Option<String>,
    /// Tokens of its model calls.
    pub tokens: u64,
    /// Cost of its model calls, in millionths of a US dollar. None if one of their prices is unknown.
    pub cost_microusd: Option<u64>,
    /// The model that wrote it.
    pub model: String,
    /// The device of its measurements.
    pub device: Option<String>,
    /// Device time of its steps, in milliseconds.
    pub device_ms: u64,
    /// Hash of its source.
    pub source: Option<ArtifactHash>,
    /// Start time.
    pub created_at: TimestampMs,
    /// End time.
    pub finished_at: Option<TimestampMs>,
}

/// The best results of a campaign's attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignBest {
    /// The campaign.
    pub campaign: CampaignId,
    /// The speedup of the fastest correct program.
    pub speedup: Option<f64>,
    /// The highest of their speedups over the fastest baseline.
    pub speedup_over_fastest: Option<f64>,
    /// Geometric mean of the best speedups of its runs.
    pub geometric_mean: Option<f64>,
    /// Geometric mean of the best speedups over the fastest baseline, where that is known.
    pub geometric_mean_over_fastest: Option<f64>,
    /// How many runs have a best correct program.
    pub solved: u64,
    /// How many of these have a known fastest baseline.
    pub solved_over_fastest: u64,
    /// Cost of its model calls with a known price, in millionths of a US dollar.
    pub cost_microusd: u64,
    /// Attempts with a model call of unknown price.
    pub unpriced_attempts: u64,
    /// Hardware targets of its runs.
    pub targets: Vec<Target>,
}

/// The key of a text of a run, with a digest of the text's source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The attempt; 0 for the run as a whole.
    pub attempt: u32,
    /// Kind of the text.
    pub kind: SearchKind,
    /// Number among several texts of this kind.
    pub part: u32,
    /// Digest of the source. A different digest means that the text has to be written again.
    pub digest: String,
}

/// A searched text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The key.
    pub key: DocumentKey,
    /// The text. Only the first [`MAX_DOCUMENT_BYTES`] are stored.
    pub body: String,
    /// Creation time.
    pub at: TimestampMs,
}

/// The port to the index. As in the engine's ports, each method is one transaction.
#[async_trait]
pub trait AttemptIndex: Send + Sync {
    /// Returns runs whose decisions are not in the index, or only in an earlier format, oldest first. It reads every run
    /// from a position on; 0 is the first run.
    async fn runs_behind(&self, form: u32, from: i64, limit: u32) -> Result<Vec<RunId>, StoreError>;

    /// Returns the position of the oldest unfinished run, or of the next run if all are finished. Runs before it change
    /// no more, except when results are imported.
    async fn oldest_unfinished_run(&self) -> Result<i64, StoreError>;

    /// Returns what a run's decisions changed after a revision.
    async fn changes_of(&self, run: &RunId, revision: u64) -> Result<RunChanges, StoreError>;

    /// Returns the steps of a run whose keys begin with `folder` and a slash, without input and output.
    async fn steps_in(&self, run: &RunId, folder: &str) -> Result<Vec<StepRecord>, StoreError>;

    /// Returns the keys of a run's stored texts, or only those of one attempt.
    async fn documents_of(&self, run: &RunId, attempt: Option<u32>) -> Result<Vec<DocumentKey>, StoreError>;

    /// Writes runs into the index. Writing the same or an earlier version has no visible effect.
    async fn put_index(&self, runs: Vec<IndexedRun>) -> Result<(), StoreError>;

    /// Returns a page of attempts with the total number. A cursor of another query is refused with
    /// `request.invalid_query`.
    async fn list_attempts(&self, query: &AttemptQuery) -> Result<AttemptPage, StoreError>;

    /// Returns attempts as points of a chart.
    async fn attempt_points(&self, query: &PointsQuery) -> Result<AttemptPoints, StoreError>;

    /// Returns the attempt of a point.
    async fn attempt_at(&self, run_key: u32, number: u32) -> Result<AttemptRow, StoreError>;

    /// Returns the leaderboards of tasks by device, for the filtered attempts, sorted by name.
    async fn task_boards(&self, filter: &AttemptFilter) -> Result<Vec<TaskBoard>, StoreError>;

    /// Returns the leaderboards of models by strategy, for the filtered attempts, with the most attempts first.
    async fn model_boards(&self, filter: &AttemptFilter) -> Result<Vec<ModelBoard>, StoreError>;

    /// Returns the results of a campaign with this many runs, over all of its attempts. `places` selects the attempts
    /// that are listed individually.
    async fn campaign_results(
        &self,
        campaign: &CampaignId,
        runs: u64,
        places: RangeInclusive<u64>,
    ) -> Result<CampaignResults, StoreError>;

    /// Returns the best results of these campaigns. Campaigns without attempts are skipped.
    async fn campaign_bests(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignBest>, StoreError>;

    /// Finds texts with these words, the newest first.
    async fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError>;
}
