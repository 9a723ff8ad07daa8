//! Times of both programs, sample by sample, and what they are worth.
//!
//! The clock of a call ticks in the runner, where the program could turn it back, answer before it is done or go on
//! between two calls. The kernel's count of processor time is out of its reach. So the runner's clock gives the times,
//! and what the candidate took of the processor beyond it, more than the baseline did, is added.

use nightshift_protocol::verdict::Finding;

use super::violation;
use crate::runner::CallTime;
use crate::statistics::{as_float, median};

/// Time that the runner's clock may miss, beyond what it misses for the baseline, before it is held against the
/// program: nanoseconds, and share of the call. Less is counted all the same.
const MISMATCH_NS: f64 = 100_000.0;
const MISMATCH_SHARE: f64 = 0.2;

/// Two standard errors of the difference of two medians, in median absolute deviations by the root of the number of
/// samples, for a normal distribution: `2 * sqrt(2) * 1.2533 * 1.4826`.
const SPREADS: f64 = 5.26;

/// Times of both, sample by sample.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) candidate: Vec<CallTime>,
    pub(super) baseline: Vec<CallTime>,
}

impl Samples {
    pub(super) fn push(&mut self, candidate: CallTime, baseline: CallTime) {
        self.candidate.push(candidate);
        self.baseline.push(baseline);
    }

    pub(super) fn len(&self) -> usize {
        self.candidate.len()
    }

    /// Times of the baseline in nanoseconds.
    pub(super) fn baseline_ns(&self) -> Vec<f64> {
        self.baseline.iter().copied().map(inside).collect()
    }

    /// Times of the candidate in nanoseconds, with what its clock did not show: what is missing throughout, and what
    /// a single call misses beyond anything that the baseline ever did.
    pub(super) fn candidate_ns(&self) -> Vec<f64> {
        let everywhere = (self.excess_ns() - self.uncertainty_ns()).max(0.0);
        let usual_most = self.baseline.iter().map(unclaimed).fold(0.0, f64::max);
        self.candidate.iter().map(|time| inside(*time) + everywhere.max(unclaimed(time) - usual_most)).collect()
    }

    /// Baseline by candidate, each pair on the same inputs and moments apart, so that a drift of the machine cancels.
    pub(super) fn ratios(&self) -> Vec<f64> {
        let pairs = self.baseline_ns().into_iter().zip(self.candidate_ns());
        pairs.map(|(baseline, candidate)| baseline / candidate).collect()
    }

    /// A program cannot have computed for longer than it was called; what the runner itself takes for an answer is the
    /// same for candidate and baseline. Who shares a busy machine may be charged for the time of others in many calls, and is
    /// not accused for that: three of four calls have to miss so much.
    pub(super) fn mismatch(&self) -> Option<Finding> {
        let total = median(&self.candidate.iter().map(taken).collect::<Vec<_>>());
        let excess = self.excess_ns().min(self.least_excess_ns());
        (excess > MISMATCH_NS.max(total * MISMATCH_SHARE)).then(|| {
            let message = format!(
                "the calls took {:.3} ms of the processor, {:.3} ms more than the runner's clock showed",
                total / 1e6,
                excess / 1e6
            );
            violation("timing_mismatch", message)
        })
    }

    fn excess_ns(&self) -> f64 {
        let usual = |times: &[CallTime]| median(&times.iter().map(unclaimed).collect::<Vec<_>>());
        usual(&self.candidate) - usual(&self.baseline)
    }

    /// What three of four calls miss beyond what the baseline's usually do.
    fn least_excess_ns(&self) -> f64 {
        let mut missed: Vec<f64> = self.candidate.iter().map(unclaimed).collect();
        missed.sort_by(f64::total_cmp);
        let usual = median(&self.baseline.iter().map(unclaimed).collect::<Vec<_>>());
        missed.get(missed.len() / 4).map_or(0.0, |quarter| quarter - usual)
    }

    /// How far chance alone may drive the two medians of [`Self::excess_ns`] apart. The baseline's spread tells: the
    /// candidate's own may be a lie.
    fn uncertainty_ns(&self) -> f64 {
        let missed: Vec<f64> = self.baseline.iter().map(unclaimed).collect();
        let middle = median(&missed);
        let spread = median(&missed.iter().map(|time| (time - middle).abs()).collect::<Vec<_>>());
        SPREADS * spread / as_float(missed.len().max(1)).sqrt()
    }
}

fn taken(time: &CallTime) -> f64 {
    float(time.processor_ns.unwrap_or(time.outside_ns))
}

fn unclaimed(time: &CallTime) -> f64 {
    (taken(time) - float(time.inside_ns)).max(0.0)
}

/// Time of a call by the runner's clock, in nanoseconds.
pub(super) fn inside(time: CallTime) -> f64 {
    // A call that the clock cannot see still takes time.
    float(time.inside_ns.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^53 nanoseconds")]
pub(super) fn float(nanoseconds: u64) -> f64 {
    nanoseconds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(inside_ns: u64, processor_ns: u64) -> Vec<CallTime> {
        vec![CallTime { inside_ns, outside_ns: 20_000_000, processor_ns: Some(processor_ns) }; 5]
    }

    fn against_honest(candidate: Vec<CallTime>) -> Samples {
        Samples { candidate, baseline: times(10_000_000, 10_040_000) }
    }

    #[test]
    fn a_clock_that_shows_too_little_is_found_out() {
        assert_eq!(against_honest(times(1_000_000, 1_045_000)).mismatch(), None);
        assert_eq!(against_honest(times(300, 60_000)).mismatch(), None);
        let lying = against_honest(times(1_000, 1_000_000)).mismatch().map(|finding| finding.code);
        assert_eq!(lying.as_deref(), Some("timing_mismatch"));
        assert!(against_honest(times(5_000_000, 10_000_000)).mismatch().is_some());
    }

    #[test]
    fn being_interrupted_is_no_lie() {
        // The clock ran on while others had the processor.
        let baseline = times(30_000_000, 10_000_000);
        for candidate in [times(9_000_000, 2_000_000), times(1_000_000, 1_020_000)] {
            assert_eq!(Samples { candidate, baseline: baseline.clone() }.mismatch(), None);
        }
    }

    #[test]
    fn who_pays_for_others_in_half_of_the_calls_is_not_accused() {
        let mut candidate = times(100_000, 400_000);
        candidate.extend(times(100_000, 140_000));
        candidate.extend(times(100_000, 400_000));
        let shared = against_honest(candidate.clone());
        assert_eq!(shared.mismatch(), None);
        // It is counted all the same, where it happened.
        assert!(shared.candidate_ns().iter().all(|time| *time > 350_000.0), "{:?}", shared.candidate_ns());
        candidate.extend(vec![candidate[0]; 10]);
        assert!(against_honest(candidate).mismatch().is_some(), "four of five calls");
    }

    #[test]
    fn what_the_clock_does_not_show_is_counted_however_little_it_is() {
        // 90 microseconds of work, none of them shown: too little to call it a lie, far too much to believe it.
        let samples = against_honest(times(0, 130_000));
        assert_eq!(samples.mismatch(), None);
        for ratio in samples.ratios() {
            assert!((ratio - 10_000.0 / 90.0).abs() < 0.01, "{ratio}");
        }
    }

    #[test]
    fn a_lie_now_and_then_is_counted_where_it_is_told() {
        let mut candidate = times(8_000_000, 8_040_000);
        candidate[1].inside_ns = 10;
        let shown = against_honest(candidate).candidate_ns();
        assert!((shown[0] - 8_000_000.0).abs() < 1.0, "{shown:?}");
        assert!((shown[1] - 8_000_000.0).abs() < 1.0, "{shown:?}");
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let time = |inside_ns| CallTime { inside_ns, outside_ns: inside_ns + 10, processor_ns: None };
        let mut samples = Samples::default();
        samples.push(time(100), time(200));
        samples.push(time(50), time(50));
        assert_eq!(samples.ratios(), [2.0, 1.0]);
    }
}
