//! The index of attempts: what makes lists over a million of them fast.
//!
//! Servers write it, run by run, after the commits that it follows ([`AttemptIndex::put_index`]). Everything in it can be
//! derived again from the states of runs, so that nothing else rests on it: the engine's port knows no attempts, and this
//! one stands beside it.
//!
//! Lists are filtered, sorted and counted over columns that every process keeps in memory, some 100 bytes for an attempt.
//! Before each answer they are brought up to date by the number of the last change (`attempt_clock`), so that all replicas
//! tell the same, and what is in the database when a question comes is in its answer. Only the rows of the page are read.

pub(crate) mod boards;
pub(crate) mod columns;
pub(crate) mod cursor;
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
use nightshift_engine::store::StoreError;
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

/// Longest text that is searched, in bytes: what comes after it is not found.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// Most attempts of one answer: the pages of lists are smaller, those of whole tables as large as this.
pub const MAX_ATTEMPT_ROWS: u32 = 5_000;

/// A run as it is written into the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedRun {
    /// The run. One that does not exist any more is left out.
    pub run: RunId,
    /// Up to which event of its log. What was written from a later one stays.
    pub seq: u64,
    /// The form of what is written: a later one takes the place of an earlier one.
    pub form: u32,
    /// Name of the task.
    pub task: String,
    /// Its hardware target.
    pub target: Target,
    /// Strategy of the run.
    pub strategy: String,
    /// All of its attempts.
    pub attempts: Vec<IndexedAttempt>,
    /// Texts that are not there yet, or not like that.
    pub documents: Vec<Document>,
}

/// An attempt as it is written into the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedAttempt {
    /// Number within the run.
    pub number: u32,
    /// Why it was written.
    pub stage: Stage,
    /// The attempt it was derived from.
    pub parent: Option<u32>,
    /// What happened to it.
    pub outcome: AttemptOutcome,
    /// Whether it is the best one of its run.
    pub is_best: bool,
    /// Whether its speedup was confirmed.
    pub is_confirmed: bool,
    /// The published speedup.
    pub speedup: Option<Interval>,
    /// The speedup over the fastest baseline of the task; none where that baseline is not known.
    pub speedup_over_fastest: Option<Interval>,
    /// Median time of one call, in nanoseconds.
    pub candidate_median_ns: Option<f64>,
    /// Its reward.
    pub reward: Option<f64>,
    /// Sum of the judge's scores.
    pub rubric_total: Option<u32>,
    /// What limits it.
    pub bound: Option<Bound>,
    /// The critical issue.
    pub issue: Option<String>,
    /// Tokens of its model calls.
    pub tokens: u64,
    /// What they cost, in millionths of a US dollar; none when the price of one is not known.
    pub cost_microusd: Option<u64>,
    /// Who wrote it.
    pub model: String,
    /// The device that it was timed on.
    pub device: Option<String>,
    /// For how long its steps were on a device, in milliseconds.
    pub device_ms: u64,
    /// Its source.
    pub source: Option<ArtifactHash>,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it was finished.
    pub finished_at: Option<TimestampMs>,
}

/// What a campaign has come to, by its attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignBest {
    /// The campaign.
    pub campaign: CampaignId,
    /// The fastest of the best right programs of its runs.
    pub speedup: Option<f64>,
    /// The highest of their speedups over the fastest baseline.
    pub speedup_over_fastest: Option<f64>,
    /// Geometric mean of their speedups.
    pub geometric_mean: Option<f64>,
    /// Geometric mean of their speedups over the fastest baseline, where that is known.
    pub geometric_mean_over_fastest: Option<f64>,
    /// What model calls of its attempts cost, in millionths of a US dollar, as far as prices are known.
    pub cost_microusd: u64,
    /// Attempts with a model call whose price is not known.
    pub unpriced_attempts: u64,
    /// Hardware targets of its runs.
    pub targets: Vec<Target>,
}

/// Which text of a run, and of what it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The attempt; 0 for the run as a whole.
    pub attempt: u32,
    /// What it is.
    pub kind: SearchKind,
    /// Which of several of this kind.
    pub part: u32,
    /// Of what it was made: another one means that it has to be written again.
    pub digest: String,
}

/// A text that is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Which.
    pub key: DocumentKey,
    /// The text; at most [`MAX_DOCUMENT_BYTES`] of it are kept.
    pub body: String,
    /// When it came into being.
    pub at: TimestampMs,
}

/// The index. Like the engine's port, each method is one transaction.
#[async_trait]
pub trait AttemptIndex: Send + Sync {
    /// Runs whose decisions the index does not know, or knows in an earlier form; oldest first. It looks at every run.
    async fn runs_behind(&self, form: u32, limit: u32) -> Result<Vec<RunId>, StoreError>;

    /// The texts of a run that are there.
    async fn documents_of(&self, run: &RunId) -> Result<Vec<DocumentKey>, StoreError>;

    /// Writes runs into the index. Writing the same again, or something earlier, changes nothing that anybody sees.
    async fn put_index(&self, runs: Vec<IndexedRun>) -> Result<(), StoreError>;

    /// A page of attempts, with how many there are. A cursor that is not of this query is refused with
    /// `request.invalid_query`.
    async fn list_attempts(&self, query: &AttemptQuery) -> Result<AttemptPage, StoreError>;

    /// Attempts as points.
    async fn attempt_points(&self, query: &PointsQuery) -> Result<AttemptPoints, StoreError>;

    /// The attempt of a point.
    async fn attempt_at(&self, run_key: u32, number: u32) -> Result<AttemptRow, StoreError>;

    /// Tasks by device, those of the filter's attempts: the names in their order.
    async fn task_boards(&self, filter: &AttemptFilter) -> Result<Vec<TaskBoard>, StoreError>;

    /// Models by strategy, those of the filter's attempts: the most attempts first.
    async fn model_boards(&self, filter: &AttemptFilter) -> Result<Vec<ModelBoard>, StoreError>;

    /// What came out of a campaign of this many runs, over all of its attempts; one by one, those at these places.
    async fn campaign_results(
        &self,
        campaign: &CampaignId,
        runs: u64,
        places: RangeInclusive<u64>,
    ) -> Result<CampaignResults, StoreError>;

    /// What these campaigns have come to; those without an attempt are left out.
    async fn campaign_bests(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignBest>, StoreError>;

    /// Texts with these words, the newest first.
    async fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError>;
}
