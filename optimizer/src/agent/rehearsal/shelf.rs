//! Notes and lessons that a recorded step was given: pinned, as a step's first try pins them.

use async_trait::async_trait;
use nightshift_engine::store::{
    KnowledgeStore, LessonQuery, LessonRecord, NoteRecord, RetrievalRecord, ScoreRecord, StoreError,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde::Deserialize;
use serde_json::Value;

use crate::knowledge::{Retrieved, RetrievedLesson, RetrievedNote, note};

/// What a recording says of them. Notes are named and taken from those that ship, so that their text is the one that
/// campaigns show.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedRetrieval {
    notes: Vec<String>,
    lessons: Vec<RetrievedLesson>,
}

/// A store that knows what one step was given, and keeps nothing.
#[derive(Debug)]
pub(super) struct Shelf {
    pinned: Value,
}

impl Shelf {
    pub(super) fn of(recorded: RecordedRetrieval) -> Result<Self, String> {
        let shipped = note::built_in().map_err(|error| error.to_string())?;
        let of_name = |name: String| {
            let found = shipped.iter().find(|note| note.id == name).cloned();
            let NoteRecord { id, title, body, .. } = found.ok_or_else(|| format!("no note `{name}` ships"))?;
            Ok(RetrievedNote { id, title, body })
        };
        let notes = recorded.notes.into_iter().map(of_name).collect::<Result<_, String>>()?;
        let given = Retrieved { notes, lessons: recorded.lessons };
        Ok(Self { pinned: serde_json::to_value(given).map_err(|error| error.to_string())? })
    }
}

#[async_trait]
impl KnowledgeStore for Shelf {
    async fn find_retrieval(&self, _: &RunId, _: &str) -> Result<Option<Value>, StoreError> {
        Ok(Some(self.pinned.clone()))
    }

    async fn list_retrievals(
        &self,
        _: &RunId,
        _: Option<u32>,
        _: Option<&str>,
        _: u32,
    ) -> Result<Vec<RetrievalRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn pin_retrieval(&self, _: &RunId, _: &str, _: Value, _: TimestampMs) -> Result<Value, StoreError> {
        Ok(self.pinned.clone())
    }

    async fn replace_notes(&self, _: &str, _: Vec<NoteRecord>, _: TimestampMs) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn search_notes(&self, _: &[String], _: u32) -> Result<Vec<NoteRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn record_lesson(&self, _: LessonRecord) -> Result<(), StoreError> {
        Ok(())
    }

    async fn find_lessons(&self, _: LessonQuery) -> Result<Vec<LessonRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn put_scores(&self, _: Vec<ScoreRecord>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list_scores(&self, _: &RunId) -> Result<Vec<ScoreRecord>, StoreError> {
        Ok(Vec::new())
    }
}
