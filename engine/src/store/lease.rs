//! Leases of steps.

use async_trait::async_trait;
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::time::TimestampMs;

use super::{Reported, StepRecord, StoreError, TryEnd};

/// An expired lease.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredLease {
    /// The step as stored.
    pub step: StepRecord,
    /// The epoch of the lease.
    pub epoch: u64,
}

/// Outcome of a heartbeat, per lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeartbeatOutcome {
    /// Leases that are gone.
    pub lost: Vec<StepId>,
    /// Steps whose run is being cancelled.
    pub cancelled: Vec<StepId>,
}

/// Leased steps: keeping a lease, and ending one that expired.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Loads one step.
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError>;

    /// Extends the leases whose epoch matches and which have not expired.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError>;

    /// Returns leases that expired before `at`.
    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError>;

    /// Ends an expired lease, after checking epoch and expiry again. The step is tried again, fails, or is cancelled.
    ///
    /// Reservations of calls without an answer count as used. Device time counts up to the reservation.
    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError>;
}
