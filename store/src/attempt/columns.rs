//! Attempts in memory by run: the columns for filters, sorting and counts.

use std::collections::BTreeMap;

use nightshift_protocol::attempt::{AttemptOutcome, Stage};
use nightshift_protocol::task::Target;

use super::labels::{Label, Labels};

/// Represents a missing number.
pub(crate) const ABSENT: i64 = i64::MIN;

/// The columns of all attempts.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Number of the last change that is included.
    pub(crate) seen: i64,
    /// Names of tasks, strategies, models and devices.
    pub(crate) names: Labels,
    /// Ids of campaigns.
    pub(crate) campaigns: Labels,
    /// Runs by internal key, which is the order of their creation.
    pub(crate) runs: BTreeMap<i64, Run>,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Number of the change that wrote it.
    pub(crate) changed: i64,
    pub(crate) id: Box<str>,
    pub(crate) campaign: Label,
    pub(crate) task: Label,
    pub(crate) target: Target,
    pub(crate) strategy: Label,
    pub(crate) attempts: Box<[Slot]>,
}

/// An attempt. Missing numbers are [`ABSENT`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) created_ms: i64,
    pub(crate) finished_ms: i64,
    pub(crate) speedup_ppm: i64,
    pub(crate) over_fastest_ppm: i64,
    pub(crate) reward_ppm: i64,
    pub(crate) cost_microusd: i64,
    pub(crate) tokens: i64,
    pub(crate) device_ms: u32,
    pub(crate) number: u32,
    pub(crate) model: Label,
    pub(crate) device: Option<Label>,
    pub(crate) outcome: AttemptOutcome,
    pub(crate) stage: Stage,
    pub(crate) is_best: bool,
    pub(crate) is_confirmed: bool,
}

impl Slot {
    /// Returns the speedup of a correct attempt. A later finding of a wrong result makes the time worthless.
    pub(crate) fn right_speedup_ppm(&self) -> Option<i64> {
        (self.outcome.is_correct() && self.speedup_ppm != ABSENT).then_some(self.speedup_ppm)
    }

    /// Returns the time at which the attempt finished, or else began.
    pub(crate) fn moment_ms(&self) -> i64 {
        if self.finished_ms == ABSENT { self.created_ms } else { self.finished_ms }
    }

    /// Returns the speedup over the fastest baseline of a correct attempt, if that baseline is known.
    pub(crate) fn right_over_fastest_ppm(&self) -> Option<i64> {
        (self.outcome.is_correct() && self.over_fastest_ppm != ABSENT).then_some(self.over_fastest_ppm)
    }
}

/// The key of an attempt in the database.
pub(crate) type Key = (i64, u32);

impl Columns {
    /// Inserts a run as it was read, unless a later version is present.
    pub(crate) fn put(&mut self, run_id: i64, run: Run) {
        if self.runs.get(&run_id).is_none_or(|known| known.changed <= run.changed) {
            self.runs.insert(run_id, run);
        }
    }

    /// Removes a deleted run.
    pub(crate) fn remove(&mut self, run_id: i64) {
        self.runs.remove(&run_id);
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
