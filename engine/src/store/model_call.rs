//! Answered model calls.

use async_trait::async_trait;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// An answered model call. A stored call is never paid for again.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCallRecord {
    /// The run.
    pub run: RunId,
    /// The step's key.
    pub step_key: String,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: String,
    /// The summary, as JSON.
    pub summary: Value,
    /// Reservations of the call that are released with it.
    pub released: Vec<Amount>,
    /// Amounts that the call used.
    pub used: Vec<Amount>,
    /// Time of the answer.
    pub at: TimestampMs,
}

/// Answered model calls.
#[async_trait]
pub trait ModelCallStore: Send + Sync {
    /// Finds the answer to a model call, if it was committed.
    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError>;

    /// Commits an answered model call with its reply. Repeating it changes nothing.
    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError>;
}
