//! What was timed on a device, and what can be told from it.

use std::time::Duration;

use nightshift_protocol::measurement::TimePair;
use nightshift_protocol::verdict::Finding;

use super::{DeviceMeasureOptions, TRIMMED};
use crate::gpu::Conditions;
use crate::measure::rows::{RowTimes, hidden_in_rows};
use crate::measure::samples::{float, inside};
use crate::measure::violation;
use crate::runner::CallTime;
use crate::statistics::{as_float, coefficient_of_variation, median, trimmed_mean};

/// Time that the device was at work beyond what the events around the calls showed, beyond the same for the baseline,
/// before it is counted: nanoseconds.
pub(in crate::measure) const HIDDEN_NS: f64 = 3_000.0;

/// The same before it is held against the program: nanoseconds, and share of the call.
const MISMATCH_NS: f64 = 5_000.0;
const MISMATCH_SHARE: f64 = 0.25;

/// What was timed while the device was ours alone.
pub(super) struct Timed {
    pub(super) candidate: Vec<CallTime>,
    pub(super) baseline: Vec<CallTime>,
    pub(super) rows: RowTimes,
    pub(super) graph: Option<TimePair>,
    pub(super) conditions: Option<Conditions>,
    pub(super) rejected: u32,
    pub(super) rejected_because: Vec<String>,
    pub(super) steady: bool,
    pub(super) alone: Duration,
    pub(super) options: DeviceMeasureOptions,
}

impl Timed {
    pub(super) fn baseline_ns(&self) -> Vec<f64> {
        self.baseline.iter().copied().map(inside).collect()
    }

    /// Time of a call, over both programs.
    pub(super) fn mean_call_ns(&self) -> f64 {
        let shown: Vec<f64> = self.candidate.iter().copied().map(inside).collect();
        f64::midpoint(median(&shown), median(&self.baseline_ns()))
    }

    /// Time of a call of each program, by the events around it.
    pub(super) fn shown(&self) -> TimePair {
        let shown = |times: &[CallTime]| trimmed_mean(&times.iter().copied().map(inside).collect::<Vec<_>>(), TRIMMED);
        TimePair { baseline_ns: shown(&self.baseline), candidate_ns: shown(&self.candidate) }
    }

    /// Times of the candidate, with what the events around its calls did not show: work on other streams, by the clock
    /// around the device's coming to rest, and whatever else, by the parent's clock around long rows of calls.
    pub(super) fn candidate_ns(&self) -> Vec<f64> {
        let hidden = self.hidden_ns();
        let counted = if hidden > HIDDEN_NS { hidden } else { 0.0 };
        self.candidate.iter().map(|time| inside(*time) + counted).collect()
    }

    /// Half the width of the interval of the ratio by the spread of both: quick enough to be asked again and again.
    pub(super) fn standard_half_width(&self) -> f64 {
        let spread = |times: Vec<f64>| {
            let middle = trimmed_mean(&times, TRIMMED);
            let within: Vec<f64> = times.into_iter().filter(|time| (time / middle - 1.0).abs() < 0.25).collect();
            coefficient_of_variation(&within).powi(2)
        };
        let both = spread(self.baseline_ns()) + spread(self.candidate.iter().copied().map(inside).collect());
        1.96 * (both / as_float(self.candidate.len().max(1))).sqrt()
    }

    /// What the events around the calls did not show, beyond the same for the baseline: on other streams, by the clock
    /// around the device's coming to rest, or in whatever way, by the parent's clock around long rows of calls.
    fn hidden_ns(&self) -> f64 {
        let unshown = |times: &[CallTime]| median(&times.iter().map(unshown).collect::<Vec<_>>());
        let on_other_streams = unshown(&self.candidate) - unshown(&self.baseline);
        let in_rows = |rows: TimePair| hidden_in_rows(&self.shown(), rows.baseline_ns, rows.candidate_ns);
        let rows = self.rows.pair().map_or(0.0, in_rows);
        on_other_streams.max(rows)
    }

    /// Counts instead of what was timed before, of which no sample counts for this reason.
    pub(super) fn take_the_place_of(&mut self, before: &Self, because: &str) {
        let samples = u32::try_from(before.candidate.len()).unwrap_or(u32::MAX);
        self.rejected = self.rejected.saturating_add(before.rejected).saturating_add(samples);
        let reasons = before.rejected_because.iter().cloned().chain([because.to_owned()]);
        for reason in reasons {
            if !self.rejected_because.contains(&reason) {
                self.rejected_because.push(reason);
            }
        }
        self.alone += before.alone;
    }

    pub(super) fn mismatch(&self) -> Option<Finding> {
        let hidden = self.hidden_ns();
        let shown = median(&self.candidate.iter().copied().map(inside).collect::<Vec<_>>());
        (hidden > MISMATCH_NS.max((shown + hidden) * MISMATCH_SHARE)).then(|| {
            let message = format!(
                "a call takes {:.1} microseconds of the device, {:.1} more than the events around it showed",
                (shown + hidden) / 1e3,
                hidden / 1e3
            );
            violation("timing_mismatch", message)
        })
    }
}

/// What the clock around a call saw and its events did not.
fn unshown(time: &CallTime) -> f64 {
    float(time.processor_ns.unwrap_or(time.inside_ns)) - float(time.inside_ns)
}
