//! Claims of steps. All leases are granted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nightshift_engine::store::{StepRecord, StoreError};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use tokio::time::Instant;

use super::{Dispatcher, Reach, Taker};
use crate::leases::Leases;
use crate::shared::Shared;
use crate::sweeper_schedule::SweeperSchedule;
use crate::worker_registry::WorkerRegistry;

/// The state of handing steps to workers.
pub(crate) struct Dispatch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) worker_registry: WorkerRegistry,
    pub(crate) leases: Leases,
    pub(crate) sweeper_schedule: SweeperSchedule,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            dispatcher: Dispatcher::default(),
            worker_registry: WorkerRegistry::default(),
            leases: Leases::default(),
            sweeper_schedule: SweeperSchedule::default(),
        }
    }

    /// Leases steps that this worker can take, waiting until `until`. Returns none when the server stops or the worker
    /// is draining.
    pub(crate) async fn wait_for_steps(
        &self,
        worker: &WorkerId,
        taker: &Taker,
        until: Instant,
    ) -> Result<(Vec<StepRecord>, Duration), StoreError> {
        let begun = Instant::now();
        let held_ms = AtomicU64::new(0);
        let mut place = self.dispatcher.join(worker, taker);
        let told = || self.worker_registry.is_draining(worker);
        let claim = |reach| {
            held_ms.store(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.claim(worker, reach)
        };
        let steps = place.steps(until, &self.shared.shutdown, told, claim).await?;
        Ok((steps, Duration::from_millis(held_ms.load(Ordering::Relaxed))))
    }

    async fn claim(&self, worker: &WorkerId, reach: Arc<Reach>) -> Result<Vec<StepRecord>, StoreError> {
        let at = self.shared.clock.now();
        let expires_at = self.shared.lease_end(at);
        let result = self.shared.store.changes.claim(reach.request(worker, at, expires_at)).await;
        self.shared.store_health.note_error(&result);
        if let Err(StoreError::NotFound { .. }) = &result {
            self.worker_registry.forget(worker);
        }
        let steps = result?;
        self.leased(worker, &steps, expires_at);
        Ok(steps)
    }

    /// Records the leased steps.
    pub(crate) fn leased(&self, worker: &WorkerId, steps: &[StepRecord], expires_at: TimestampMs) {
        if steps.is_empty() {
            return;
        }
        self.sweeper_schedule.leased(worker, expires_at);
        for step in steps {
            self.leases.keep(step);
        }
    }
}
