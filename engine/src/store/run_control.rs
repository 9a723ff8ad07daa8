//! What people ask of a run.

use async_trait::async_trait;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// What people ask of a run.
#[async_trait]
pub trait RunControlStore: Send + Sync {
    /// Pauses, resumes or cancels a run: changes the status and appends the event. `by` names the caller.
    ///
    /// Steps of the run leave the ready list or return to it. Cancelling cancels scheduled steps at once. Leased steps
    /// end with their lease.
    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError>;

    /// Appends a signal to the run's log. Repeating a signal with the same key appends nothing.
    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the priority of a run's steps, including steps that are ready.
    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError>;

    /// Schedules failed steps of a failed run again (all, or one) with fresh tries, and sets the run to running.
    ///
    /// Steps that were cancelled because the run failed are scheduled too.
    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError>;
}
