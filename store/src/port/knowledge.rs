//! Knowledge.

use async_trait::async_trait;
use nightshift_engine::store::{
    KnowledgeStore, LessonQuery, LessonRecord, NoteRecord, RetrievalRecord, ScoreRecord, StoreError,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::catalog::{lesson, note, retrieval, score};
use crate::store::SqlStore;

#[async_trait]
impl KnowledgeStore for SqlStore {
    async fn replace_notes(&self, source: &str, notes: Vec<NoteRecord>, at: TimestampMs) -> Result<u64, StoreError> {
        let source = source.to_owned();
        transaction!(self, |tx, source, notes, at| note::replace(tx, source, notes, *at))
    }

    async fn search_notes(&self, words: &[String], limit: u32) -> Result<Vec<NoteRecord>, StoreError> {
        read!(self, |connection| note::search(connection, words, limit))
    }

    async fn record_lesson(&self, lesson: LessonRecord) -> Result<(), StoreError> {
        transaction!(self, |tx, lesson| lesson::record(tx, lesson))
    }

    async fn find_lessons(&self, query: LessonQuery) -> Result<Vec<LessonRecord>, StoreError> {
        read!(self, |connection| lesson::find(connection, &query))
    }

    async fn pin_retrieval(
        &self,
        run: &RunId,
        step_key: &str,
        items: Value,
        at: TimestampMs,
    ) -> Result<Value, StoreError> {
        let (run, step_key) = (run.clone(), step_key.to_owned());
        transaction!(self, |tx, run, step_key, items, at| retrieval::pin(tx, run, step_key, items, *at))
    }

    async fn find_retrieval(&self, run: &RunId, step_key: &str) -> Result<Option<Value>, StoreError> {
        read!(self, |connection| retrieval::find(connection, run, step_key))
    }

    async fn list_retrievals(
        &self,
        run: &RunId,
        attempt: Option<u32>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<RetrievalRecord>, StoreError> {
        read!(self, |connection| retrieval::list(connection, run, attempt, after, limit))
    }

    async fn put_scores(&self, scores: Vec<ScoreRecord>) -> Result<(), StoreError> {
        transaction!(self, |tx, scores| score::put(tx, scores))
    }

    async fn list_scores(&self, run: &RunId) -> Result<Vec<ScoreRecord>, StoreError> {
        read!(self, |connection| score::list(connection, run))
    }
}
