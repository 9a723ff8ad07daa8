//! Workers, and their quarantined devices.

use async_trait::async_trait;
use nightshift_protocol::id::{ServerId, WorkerId};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// A worker to register.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Id; a restarted process has a new one.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it runs in the server's process.
    pub embedded: bool,
    /// Its offers, as JSON.
    pub offers: Value,
    /// Its version.
    pub version: String,
    /// Time of the last contact.
    pub last_seen_at: TimestampMs,
    /// Number of its leases.
    pub leases: u64,
    /// The server lease of an embedded worker. Its leases end with it.
    pub server: Option<ServerId>,
    /// Whether it takes no new steps and is about to end.
    pub draining: bool,
}

/// Workers.
#[async_trait]
pub trait WorkerStore: Send + Sync {
    /// Registers a worker.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError>;

    /// Lists workers, most recently seen first.
    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Loads one worker.
    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError>;

    /// Records that workers were seen. Unknown workers are skipped.
    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError>;

    /// Asks a worker to take no new steps, or to resume.
    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError>;

    /// Deletes workers without leases that were last seen before `before`. Their steps keep the worker's id.
    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError>;
}
