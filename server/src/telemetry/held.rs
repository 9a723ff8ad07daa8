//! Tries that are under way, as far as they passed by this server: what is known when one ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::StepRecord;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::step::StepKind;
use nightshift_protocol::time::TimestampMs;

/// Tries that are remembered. Those beyond are counted as ended, without their duration.
const MAX_HELD: usize = 50_000;

/// A try.
#[derive(Debug, Clone)]
pub(super) struct HeldTry {
    pub(super) step: StepId,
    pub(super) epoch: u64,
    pub(super) run: RunId,
    pub(super) key: String,
    pub(super) kind: &'static str,
    pub(super) route: String,
    pub(super) tries: u32,
    pub(super) worker: Option<WorkerId>,
    pub(super) device: Option<u32>,
    /// Since when it could begin.
    pub(super) ready_at: TimestampMs,
    pub(super) started_at: TimestampMs,
}

impl HeldTry {
    /// The try of a leased step.
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

/// The name of a kind of step, as a label with few values.
pub(super) fn kind_name(kind: &str) -> &'static str {
    StepKind::parse(kind).map_or("other", StepKind::as_str)
}

/// The tries under way.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<StepId, HeldTry>>);

impl Held {
    pub(super) fn keep(&self, step: &StepRecord) {
        let Some(held) = HeldTry::of(step) else { return };
        let mut tries = self.tries();
        if tries.len() >= MAX_HELD {
            // Most of them ended where this server did not see it.
            tries.clear();
        }
        tries.insert(held.step.clone(), held);
    }

    /// The try of this epoch, which is over now.
    pub(super) fn end(&self, step: &StepId, epoch: u64) -> Option<HeldTry> {
        let mut tries = self.tries();
        if tries.get(step)?.epoch != epoch {
            return None;
        }
        tries.remove(step)
    }

    /// The try of a step that is known by its key.
    pub(super) fn find(&self, run: &RunId, key: &str) -> Option<HeldTry> {
        self.tries().values().find(|held| held.run == *run && held.key == key).cloned()
    }

    fn tries(&self) -> MutexGuard<'_, HashMap<StepId, HeldTry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
