//! Attempts in memory: what filters, sorts and counts look at, by run.

use std::collections::BTreeMap;

use nightshift_protocol::attempt::{AttemptOutcome, Stage};
use nightshift_protocol::task::Target;

use super::labels::{Label, Labels};

/// Stands for a number that is not there.
pub(crate) const ABSENT: i64 = i64::MIN;

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// The last change that is in it.
    pub(crate) seen: i64,
    /// Names of tasks, strategies, models and devices.
    pub(crate) names: Labels,
    /// Ids of campaigns.
    pub(crate) campaigns: Labels,
    /// By internal key: in the order in which they were created.
    pub(crate) runs: BTreeMap<i64, Run>,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The change that wrote it.
    pub(crate) changed: i64,
    pub(crate) id: Box<str>,
    pub(crate) campaign: Label,
    pub(crate) task: Label,
    pub(crate) target: Target,
    pub(crate) strategy: Label,
    pub(crate) attempts: Box<[Slot]>,
}

/// An attempt. Numbers that are not there are [`ABSENT`].
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
    /// The speedup, where results were right: what was found out later may have made the time worthless.
    pub(crate) fn right_speedup_ppm(&self) -> Option<i64> {
        (self.outcome.is_correct() && self.speedup_ppm != ABSENT).then_some(self.speedup_ppm)
    }

    /// The speedup over the fastest baseline, where results were right and that baseline is known.
    pub(crate) fn right_over_fastest_ppm(&self) -> Option<i64> {
        (self.outcome.is_correct() && self.over_fastest_ppm != ABSENT).then_some(self.over_fastest_ppm)
    }
}

/// The key of an attempt in the database.
pub(crate) type Key = (i64, u32);

impl Columns {
    /// Takes a run as it was read. One that is known from a later change stays.
    pub(crate) fn put(&mut self, run_id: i64, run: Run) {
        if self.runs.get(&run_id).is_none_or(|known| known.changed <= run.changed) {
            self.runs.insert(run_id, run);
        }
    }

    /// Forgets a run that was deleted.
    pub(crate) fn remove(&mut self, run_id: i64) {
        self.runs.remove(&run_id);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
