//! Running tries that this server has seen, for the metrics and spans at their end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::StepRecord;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::step::StepKind;
use nightshift_protocol::time::TimestampMs;

/// Maximum number of tracked tries. Others are counted without a duration.
const MAX_TRACKED: usize = 50_000;

/// A try.
#[derive(Debug, Clone)]
pub(super) struct RunningTry {
    pub(super) step: StepId,
    pub(super) epoch: u64,
    pub(super) run: RunId,
    pub(super) key: String,
    pub(super) kind: &'static str,
    pub(super) route: String,
    pub(super) tries: u32,
    pub(super) worker: Option<WorkerId>,
    pub(super) device: Option<u32>,
    /// When it could have begun.
    pub(super) ready_at: TimestampMs,
    pub(super) started_at: TimestampMs,
}

impl RunningTry {
    /// Creates the try of a leased step.
    pub(super) fn of(step: &StepRecord) -> Option<Self> {
        let started_at = step.started_at?;
        Some(Self {
            step: step.id.clone(),
            epoch: step.epoch,
            run: step.run.clone(),
            key: step.key.clone(),
            kind: kind_name(&step.kind),
            route: step.route.clone(),
            tries: step.tries,
            worker: step.worker.clone(),
            device: step.device,
            ready_at: step.not_before.map_or(step.scheduled_at, |at| at.max(step.scheduled_at)).min(started_at),
            started_at,
        })
    }
}

/// Returns the kind of a step as a label with few values.
pub(super) fn kind_name(kind: &str) -> &'static str {
    StepKind::parse(kind).map_or("other", StepKind::as_str)
}

/// The running tries.
#[derive(Debug, Default)]
pub(super) struct RunningTries(Mutex<HashMap<StepId, RunningTry>>);

impl RunningTries {
    pub(super) fn keep(&self, step: &StepRecord) {
        let Some(held) = RunningTry::of(step) else { return };
        let mut tries = self.tries();
        if tries.len() >= MAX_TRACKED {
            // Most of them ended on another server.
            tries.clear();
        }
        tries.insert(held.step.clone(), held);
    }

    /// Removes and returns the try of this epoch, which has ended.
    pub(super) fn end(&self, step: &StepId, epoch: u64) -> Option<RunningTry> {
        let mut tries = self.tries();
        if tries.get(step)?.epoch != epoch {
            return None;
        }
        tries.remove(step)
    }

    /// Returns the try of a step by its key.
    pub(super) fn find(&self, run: &RunId, key: &str) -> Option<RunningTry> {
        self.tries().values().find(|held| held.run == *run && held.key == key).cloned()
    }

    fn tries(&self) -> MutexGuard<'_, HashMap<StepId, RunningTry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
