//! Ownership of runs: one server at a time decides for a run.

use async_trait::async_trait;
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;

use super::{CreatedRun, OwnerFence, StoreError};

/// Ownership of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The asking server owns it, under this epoch.
    Mine(OwnerFence),
    /// Another living server owns it.
    Other(ServerId),
    /// A newer release owned it last. Its state may hold data that the asking server would lose.
    TooNew {
        /// The format of its state.
        state_format: u32,
    },
    /// Its campaign is handed over to another machine: no server decides for it here.
    HandedOver,
    /// The run has ended.
    Over,
}

/// Which server decides for which run.
#[async_trait]
pub trait OwnershipStore: Send + Sync {
    /// Returns the work list of the driver. It holds unfinished runs whose log has an unfolded event that requires a
    /// decision, and cancelled runs without leases.
    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError>;

    /// Acquires runs that wait for a decision and belong to this server, to no server or to a dead server.
    ///
    /// A run that changes its owner gets a higher owner epoch.
    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError>;

    /// Acquires one run that may wait for a decision. See [`Self::acquire_runs`].
    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError>;

    /// Removes and returns this process's copy of a run that it created, so that the first decision needs no read.
    ///
    /// The copy may be outdated; the commit of the decision detects that. Returning `None` is always correct.
    fn take_created(&self, run: &RunId) -> Option<CreatedRun>;

    /// Counts unfinished runs whose state has a higher format. No server with this format acquires them.
    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError>;
}
