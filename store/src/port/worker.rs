//! Workers.

use async_trait::async_trait;
use nightshift_engine::store::{StoreError, WorkerRecord, WorkerStore};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::worker;
use crate::store::SqlStore;

#[async_trait]
impl WorkerStore for SqlStore {
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        transaction!(self, |tx, worker| worker::register(tx, worker))
    }

    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        read!(self, |connection| worker::list(connection, limit))
    }

    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError> {
        read!(self, |connection| worker::load(connection, id))
    }

    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError> {
        if workers.is_empty() {
            return Ok(());
        }
        let workers = workers.to_vec();
        transaction!(self, |tx, workers, at| worker::all_seen(tx, workers, *at))
    }

    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, draining| worker::drain(tx, id, *draining))
    }

    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, before| worker::forget(tx, *before))
    }
}
