//! Driving runs: the runs that this server owns, its lease on them, and the wake-ups of the loops that decide.

use std::sync::Arc;

use nightshift_engine::driver::Driver;
use nightshift_engine::store::StoreError;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use tokio::sync::Notify;

use crate::dispatch::Dispatch;
use crate::fences::Fences;
use crate::run_inputs::RunInputs;
use crate::server_lease::ServerLease;
use crate::shared::Shared;
use crate::wake::Wake;

/// The state of driving runs.
pub(crate) struct Driving {
    pub(crate) shared: Arc<Shared>,
    /// Where the steps of decided runs go.
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) driver: Driver,
    /// Address of the listener, with the real port, which the server lease names.
    pub(crate) address: String,
    pub(crate) server_lease: ServerLease,
    pub(crate) fences: Fences,
    pub(crate) inputs: RunInputs,
    pub(crate) wake: Wake,
    /// Notified when a request may have been opened.
    pub(crate) requests: Notify,
}

impl Driving {
    pub(crate) fn new(shared: Arc<Shared>, dispatch: Arc<Dispatch>, driver: Driver, address: String) -> Self {
        Self {
            shared,
            dispatch,
            driver,
            address,
            server_lease: ServerLease::new(),
            fences: Fences::default(),
            inputs: RunInputs::default(),
            wake: Wake::new(),
            requests: Notify::new(),
        }
    }

    /// Changes a run's status.
    pub(crate) async fn control(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: &str,
    ) -> Result<RunStatus, StoreError> {
        let shared = &self.shared;
        let result = shared.store.run_control.control_run(run, transition, Some(by), shared.clock.now()).await;
        shared.store_health.note_error(&result);
        let status = result?;
        tracing::info!(run.id = %run, run.status = status.as_str(), by, "a run was controlled");
        Ok(status)
    }
}
