//! Knowledge: searchable notes, lessons of runs, what a step received of both, and scores
//! computed later.
//!
//! Nothing here decides about a run. The first try of a step pins what the step receives. A later try renders the same
//! prompt and finds its answered call.

use async_trait::async_trait;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// Maximum number of words of a search.
pub const MAX_SEARCH_WORDS: usize = 64;

/// A short note about making programs faster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteRecord {
    /// Name, unique over all sources: the source, a slash, and the file's name.
    pub id: String,
    /// Name of the source, for example `built_in`. Notes are replaced source by source.
    pub source: String,
    /// Title of one line.
    pub title: String,
    /// The text.
    pub body: String,
    /// Bottlenecks that it applies to; empty for any.
    pub bounds: Vec<String>,
    /// Classes of operators that it applies to; empty for any.
    pub operators: Vec<String>,
    /// Architectures that it applies to, for example `sm_90`; empty for any.
    pub architectures: Vec<String>,
}

/// The source of the statement about what limited a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundFrom {
    /// The diagnosis, from measurements.
    Diagnosis,
    /// The plan, as an expectation.
    Plan,
}

impl BoundFrom {
    /// Returns the stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Diagnosis => "diagnosis",
            Self::Plan => "plan",
        }
    }

    /// Returns the variant of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Diagnosis, Self::Plan].into_iter().find(|from| from.as_str() == name)
    }
}

/// The measured effect of a change to a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonRecord {
    /// The run that recorded it.
    pub run: RunId,
    /// Its attempt.
    pub attempt: u32,
    /// Name of the task.
    pub task: String,
    /// Class of the changed operator.
    pub operator_class: String,
    /// What limited the program before, or `unknown`.
    pub bound: String,
    /// Source of `bound`.
    pub bound_from: BoundFrom,
    /// The device.
    pub device: String,
    /// The change, in one or two sentences.
    pub change: String,
    /// Speed after over speed before, in millionths: 1300000 is a gain of 30 %.
    pub gain_ppm: u64,
    /// Whether the confidence intervals before and after are disjoint. Otherwise the gain may be noise.
    pub certain: bool,
    /// Time of recording.
    pub at: TimestampMs,
}

/// A search for lessons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LessonQuery {
    /// Classes of operators; a lesson matches any of them.
    pub operator_classes: Vec<String>,
    /// Current bottleneck of the program: its lessons come first.
    pub bound: Option<String>,
    /// The device: its lessons come first.
    pub device: Option<String>,
    /// Run whose lessons are omitted, because its prompts contain its history already.
    pub except_run: Option<RunId>,
    /// Maximum number of lessons.
    pub limit: u32,
}

/// A score of an attempt that was computed after its run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRecord {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: u32,
    /// Formula with its version, for example `nightshift.1`.
    pub formula: String,
    /// The score with all of its inputs.
    pub score: Value,
    /// Time of the computation.
    pub at: TimestampMs,
}

/// The notes and lessons that a step received.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrievalRecord {
    /// The step.
    pub step_key: String,
    /// The notes and lessons.
    pub items: Value,
    /// Time of the lookup.
    pub at: TimestampMs,
}

/// Notes, lessons, retrievals and later scores.
#[async_trait]
pub trait KnowledgeStore: Send + Sync {
    /// Replaces the notes of a source. Returns the number of changed rows, zero if they are stored already.
    async fn replace_notes(&self, source: &str, notes: Vec<NoteRecord>, at: TimestampMs) -> Result<u64, StoreError>;

    /// Finds notes that contain any of the words, in any of their forms. Best matches first, equal ones by name.
    async fn search_notes(&self, words: &[String], limit: u32) -> Result<Vec<NoteRecord>, StoreError>;

    /// Stores a lesson. An attempt of a run has at most one.
    async fn record_lesson(&self, lesson: LessonRecord) -> Result<(), StoreError>;

    /// Finds lessons: same bottleneck first, then same device, then the latest.
    async fn find_lessons(&self, query: LessonQuery) -> Result<Vec<LessonRecord>, StoreError>;

    /// Pins what this step receives: the stored items, or else these items, which are stored.
    async fn pin_retrieval(
        &self,
        run: &RunId,
        step_key: &str,
        items: Value,
        at: TimestampMs,
    ) -> Result<Value, StoreError>;

    /// Finds the pinned items of this step.
    async fn find_retrieval(&self, run: &RunId, step_key: &str) -> Result<Option<Value>, StoreError>;

    /// Lists the pinned items of steps of this run by step key, after `after`: of all steps, or of one attempt.
    async fn list_retrievals(
        &self,
        run: &RunId,
        attempt: Option<u32>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<RetrievalRecord>, StoreError>;

    /// Stores scores. An attempt keeps the latest score per formula.
    async fn put_scores(&self, scores: Vec<ScoreRecord>) -> Result<(), StoreError>;

    /// Lists the scores of a run, by attempt and formula.
    async fn list_scores(&self, run: &RunId) -> Result<Vec<ScoreRecord>, StoreError>;
}
