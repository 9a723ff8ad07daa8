//! Hot changes: claims, reports and decisions, which are committed together.

use async_trait::async_trait;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::time::TimestampMs;

use super::error::mismatch;
use super::{Advance, Advanced, StepRecord, StoreError, TryEnd};

/// A claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The worker.
    pub worker: WorkerId,
    /// Routes of steps without a device. Together they get at most `cpu_slots` steps.
    pub routes: Vec<String>,
    /// Free slots for steps without a device.
    pub cpu_slots: u32,
    /// Devices on which something can begin.
    pub devices: Vec<DeviceLane>,
    /// Time of the claim.
    pub at: TimestampMs,
    /// End of the lease without a heartbeat.
    pub expires_at: TimestampMs,
}

/// What can begin on one device. The step with the lowest rank decides.
///
/// If that step needs the device exclusively, it is the only one. Otherwise sharing steps are leased up to the first
/// step that needs the device exclusively. So no step waits behind a stream of sharing steps.
#[derive(Debug, Clone)]
pub struct DeviceLane {
    /// The device's number on its machine.
    pub device: u32,
    /// Routes of exclusive steps. Empty while another step runs on the device.
    pub exclusive: Vec<String>,
    /// Routes of sharing steps.
    pub shared: Vec<String>,
    /// Free slots for sharing steps.
    pub shared_slots: u32,
}

/// One hot change. Changes that are committed together are applied in their order, each atomically.
#[derive(Debug, Clone)]
pub enum Change {
    /// See [`ChangeStore::report`].
    Report(Report),
    /// See [`ChangeStore::advance`].
    Advance(Box<Advance>),
    /// See [`ChangeStore::claim`].
    Claim(ClaimRequest),
}

/// The end of a try, as its worker reports it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The step.
    pub step: StepId,
    /// The lease epoch of the try.
    pub epoch: u64,
    /// How it ended.
    pub end: TryEnd,
    /// Amounts that the try used of the step's own reservation.
    pub used: Vec<Amount>,
    /// Time of the report.
    pub at: TimestampMs,
}

/// Outcome of a [`Change`].
#[derive(Debug, Clone)]
pub enum Changed {
    /// Of a report.
    Reported(Reported),
    /// Of a decision.
    Advanced(Advanced),
    /// Of a claim.
    Claimed(Vec<StepRecord>),
}

/// Outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is committed, now or by an earlier copy of the same report.
    Committed,
    /// The lease was lost. Nothing was changed.
    LeaseLost,
}

/// Hot changes: claims, reports and decisions, many in one transaction.
#[async_trait]
pub trait ChangeStore: Send + Sync {
    /// Commits hot changes in one transaction, in their order.
    ///
    /// Each change is atomic. A change that fails its check (a lost lease, a conflict) does not affect the others. An
    /// error affects all of them.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError>;

    /// Commits a decision. If the run ends, its open steps are cancelled and their leases end.
    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        match self.commit(vec![Change::Advance(Box::new(advance))]).await?.pop() {
            Some(Changed::Advanced(advanced)) => Ok(advanced),
            _ => Err(mismatch()),
        }
    }

    /// Leases ready steps to a worker, in the order of their rank, each under a new epoch.
    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError> {
        match self.commit(vec![Change::Claim(claim)]).await?.pop() {
            Some(Changed::Claimed(steps)) => Ok(steps),
            _ => Err(mismatch()),
        }
    }

    /// Commits how a try ended, if the fence holds. A second copy of a committed report returns `Committed`.
    async fn report(&self, report: Report) -> Result<Reported, StoreError> {
        match self.commit(vec![Change::Report(report)]).await?.pop() {
            Some(Changed::Reported(reported)) => Ok(reported),
            _ => Err(mismatch()),
        }
    }
}
