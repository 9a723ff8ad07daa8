//! Ownership of runs.

use async_trait::async_trait;
use nightshift_engine::store::{CreatedRun, OwnerFence, Ownership, OwnershipStore, StoreError};
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{ownership, run};
use crate::store::SqlStore;

#[async_trait]
impl OwnershipStore for SqlStore {
    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError> {
        read!(self, |connection| run::to_drive(connection, limit))
    }

    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, limit, at| ownership::acquire_runs(tx, server, *limit, *at))
    }

    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError> {
        let (server, run) = (server.clone(), run.clone());
        transaction!(self, |tx, server, run, at| ownership::acquire_run(tx, server, run, *at))
    }

    fn take_created(&self, run: &RunId) -> Option<CreatedRun> {
        self.around.memory.created.take(run)
    }

    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError> {
        read!(self, |connection| ownership::count_newer(connection, state_format))
    }
}
