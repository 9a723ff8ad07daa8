//! The part of the port that is about knowledge: notes that are searched, lessons that runs left behind, what a step was
//! given of both, and scores that were computed later.
//!
//! Nothing here decides about a run. What a step was given is pinned by the first try, so that a step that is tried again
//! renders the same prompt and finds its answered call.

use async_trait::async_trait;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// Most words of a search.
pub const MAX_SEARCH_WORDS: usize = 64;

/// A short note about how programs become faster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteRecord {
    /// Name, unique over all sources: the source, a slash, and the file's name.
    pub id: String,
    /// Whose notes it belongs to, for example `built_in`. Notes are replaced source by source.
    pub source: String,
    /// One line.
    pub title: String,
    /// The text.
    pub body: String,
    /// What limits the programs that it is about; empty for any.
    pub bounds: Vec<String>,
    /// Classes of operators that it is about; empty for any.
    pub operators: Vec<String>,
    /// Architectures that it is about, for example `sm_90`; empty for any.
    pub architectures: Vec<String>,
}

/// Who said what limited a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundFrom {
    /// Its diagnosis, from what was measured.
    Diagnosis,
    /// The plan, which expected it.
    Plan,
}

impl BoundFrom {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Diagnosis => "diagnosis",
            Self::Plan => "plan",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Diagnosis, Self::Plan].into_iter().find(|from| from.as_str() == name)
    }
}

/// What a change to a program brought, measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonRecord {
    /// The run that learned it.
    pub run: RunId,
    /// Its attempt.
    pub attempt: u32,
    /// Name of the task.
    pub task: String,
    /// Class of the operator that the change was about.
    pub operator_class: String,
    /// What limited the program before, or `unknown`.
    pub bound: String,
    /// Who said so.
    pub bound_from: BoundFrom,
    /// The device.
    pub device: String,
    /// What was changed, in a sentence or two.
    pub change: String,
    /// Speed after over speed before, in millionths: 1300000 is a gain of 30 %.
    pub gain_ppm: u64,
    /// Whether the intervals before and after lie apart: else it may be noise.
    pub certain: bool,
    /// When.
    pub at: TimestampMs,
}

/// Which lessons are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LessonQuery {
    /// Classes of operators, any of them.
    pub operator_classes: Vec<String>,
    /// What limits the program now: lessons of that bound come first.
    pub bound: Option<String>,
    /// The device: lessons of that device come first.
    pub device: Option<String>,
    /// Lessons of this run are left out: its prompts tell its history anyway.
    pub except_run: Option<RunId>,
    /// At most so many.
    pub limit: u32,
}

/// A score of an attempt that was computed after its run had made its own.
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
    /// When it was computed.
    pub at: TimestampMs,
}

/// What a step was given of notes and lessons.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrievalRecord {
    /// The step.
    pub step_key: String,
    /// What it was given.
    pub items: Value,
    /// When it was looked up.
    pub at: TimestampMs,
}

/// Notes, lessons, retrievals and later scores.
#[async_trait]
pub trait KnowledgeStore: Send + Sync {
    /// Makes these the notes of a source. Gives how many rows were changed: none when they are there already.
    async fn replace_notes(&self, source: &str, notes: Vec<NoteRecord>, at: TimestampMs) -> Result<u64, StoreError>;

    /// Notes that hold any of the words, in any of their forms; the best first, equal ones by name.
    async fn search_notes(&self, words: &[String], limit: u32) -> Result<Vec<NoteRecord>, StoreError>;

    /// Keeps a lesson; the same attempt of the same run teaches once.
    async fn record_lesson(&self, lesson: LessonRecord) -> Result<(), StoreError>;

    /// Lessons: same bound first, then same device, then the latest.
    async fn find_lessons(&self, query: LessonQuery) -> Result<Vec<LessonRecord>, StoreError>;

    /// What this step was given: what is stored already, or these items, which are stored with that.
    async fn pin_retrieval(
        &self,
        run: &RunId,
        step_key: &str,
        items: Value,
        at: TimestampMs,
    ) -> Result<Value, StoreError>;

    /// What this step was given, when it was pinned.
    async fn find_retrieval(&self, run: &RunId, step_key: &str) -> Result<Option<Value>, StoreError>;

    /// What steps of this run were given, by their keys from `after` on: all of them, or those of one attempt.
    async fn list_retrievals(
        &self,
        run: &RunId,
        attempt: Option<u32>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<RetrievalRecord>, StoreError>;

    /// Keeps scores; an attempt has one for each formula, the latest.
    async fn put_scores(&self, scores: Vec<ScoreRecord>) -> Result<(), StoreError>;

    /// Scores of a run, by attempt and formula.
    async fn list_scores(&self, run: &RunId) -> Result<Vec<ScoreRecord>, StoreError>;
}
