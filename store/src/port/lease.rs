//! Leases.

use async_trait::async_trait;
use nightshift_engine::store::{ExpiredLease, HeartbeatOutcome, LeaseStore, Reported, StepRecord, StoreError, TryEnd};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{lease, step};
use crate::store::SqlStore;

#[async_trait]
impl LeaseStore for SqlStore {
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        read!(self, |connection| step::load(connection, id))
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        transaction!(self, |tx, worker, leases, at, expires_at| lease::heartbeat(tx, worker, leases, *at, *expires_at))
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        read!(self, |connection| lease::expired(connection, at, limit))
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        let step = step.clone();
        transaction!(self, |tx, step, epoch, end, at| lease::expire(tx, step, *epoch, end, *at))
    }
}
