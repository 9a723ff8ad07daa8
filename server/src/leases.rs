//! Cache of the steps that were leased through this server, without their inputs, so that a report needs no read. The
//! fence decides about validity.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::StepRecord;
use nightshift_protocol::id::StepId;
use serde_json::Value;

/// Maximum number of cached steps. Reports of others read their step.
const MAX_KEPT: usize = 50_000;

/// The leased steps.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<StepId, StepRecord>>);

impl Leases {
    /// Caches a leased step.
    pub(crate) fn keep(&self, step: &StepRecord) {
        let mut kept = self.kept();
        if kept.len() >= MAX_KEPT {
            // Lost leases are never reported and would fill the cache. Valid ones are read once more.
            kept.clear();
        }
        kept.insert(step.id.clone(), without_input(step));
    }

    /// Returns the step leased under this epoch.
    pub(crate) fn find(&self, step: &StepId, epoch: u64) -> Option<StepRecord> {
        self.kept().get(step).filter(|kept| kept.epoch == epoch).cloned()
    }

    /// Removes a step after its lease.
    pub(crate) fn forget(&self, step: &StepId) {
        self.kept().remove(step);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<StepId, StepRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn without_input(step: &StepRecord) -> StepRecord {
    StepRecord {
        id: step.id.clone(),
        run: step.run.clone(),
        key: step.key.clone(),
        kind: step.kind.clone(),
        route: step.route.clone(),
        status: step.status,
        epoch: step.epoch,
        tries: step.tries,
        retry: step.retry,
        timeout_ms: step.timeout_ms,
        worker: step.worker.clone(),
        input: Value::Null,
        output: None,
        failure: None,
        scheduled_at: step.scheduled_at,
        started_at: step.started_at,
        finished_at: step.finished_at,
        not_before: step.not_before,
        blocked_on: step.blocked_on,
        device: step.device,
        reserve: step.reserve.clone(),
    }
}
