//! Times of the pairs of one pair of processes, and what they say.

use std::time::Duration;

use nightshift_protocol::measurement::DeviceConditions;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::Finding;

use super::verify::OutputVerifier;
use super::windows::{Usual, WindowTimes, per_call};
use super::{DISTURBED, Side};
use crate::breach::{violation, warning};
use crate::statistics::{median, quantile};

/// The code of work outside of calls, a violation that rests on times alone.
pub const WORK_OUTSIDE_CALL: &str = "work_outside_call";

/// A lone call may take this share of a call in a row and so many nanoseconds more than the call in the row, beside what the baseline's
/// lone calls take more: what is beyond was computed for several calls at once, or at the same time.
const OVERLAP_SHARE: f64 = 0.05;
const OVERLAP_NS: f64 = 1_000.0;

/// A call that waits longer than the baseline's by this share of its processor time, and by so many nanoseconds, is charged for it.
const WAITED_SHARE: f64 = 0.2;
const WAITED_NS: f64 = 20_000.0;

/// Hidden time that is worth an accusation: a share of the call, and nanoseconds.
const ACCUSED_SHARE: f64 = 0.05;
const ACCUSED_NS: f64 = 5_000.0;

/// Shares of a program's time that may be subtracted too much before: in a steady measurement, and before its times mean nothing.
const STEADY_SHARE: f64 = 0.02;
const MEANINGLESS_SHARE: f64 = 0.3;

/// A baseline may be this share slower next to the candidate than alone.
const DISTURBED_SHARE: f64 = 0.05;

/// One window of each program.
pub(super) struct Pair {
    pub(super) candidate: WindowTimes,
    pub(super) baseline: WindowTimes,
    /// Whether something else computed on the programs' core.
    pub(super) on_shared_core: bool,
}

/// Times of a measurement.
#[derive(Default)]
pub(super) struct PairTimes {
    /// Calls of a window.
    pub(super) calls: usize,
    /// Time of one call of each program in each pair, in nanoseconds.
    pub(super) candidate_ns: Vec<f64>,
    pub(super) baseline_ns: Vec<f64>,
    /// The same of lone calls, where windows have several.
    pub(super) lone_candidate_ns: Vec<f64>,
    pub(super) lone_baseline_ns: Vec<f64>,
    /// Time of one call of the candidate that calls in a row share, in all pairs of processes.
    pub(super) overlap_ns: f64,
    /// Device time of one call by events, as the processes tell.
    pub(super) events_candidate_ns: Vec<f64>,
    pub(super) events_baseline_ns: Vec<f64>,
    /// Time of one call that the candidate computed outside of its calls.
    pub(super) hidden_ns: Vec<f64>,
    /// The same of the baseline, which computes nothing outside of them: no part of its time.
    pub(super) hidden_baseline_ns: Vec<f64>,
    /// On the host: time of one call of each in which its process did not compute.
    pub(super) waited_ns: Vec<f64>,
    pub(super) waited_baseline_ns: Vec<f64>,
    /// The baseline's times of one call while the candidate was not loaded.
    pub(super) solo_ns: Vec<f64>,
    /// The same after the candidate had ended, where the baseline was slower next to it.
    pub(super) alone_after_ns: Vec<f64>,
    pub(super) timed_calls: u64,
    pub(super) verified_calls: u64,
    /// Verified calls after the timed ones.
    pub(super) later_calls: u64,
    pub(super) turned_wrong: bool,
    pub(super) wrong: bool,
    pub(super) conditions: Option<DeviceConditions>,
    /// Counted pairs during which something else computed on the programs' core.
    pub(super) on_shared_core: u32,
    pub(super) rejected: u32,
    pub(super) rejected_because: Vec<String>,
    pub(super) steady: bool,
    pub(super) alone: Duration,
}

impl PairTimes {
    /// How long a call of the candidate waits, as a program does that sleeps, beyond what the baseline's do. The least of all
    /// windows counts, as other processes make every program wait now and then.
    fn waits_ns(&self) -> Option<f64> {
        let least = |times: &[f64]| times.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let beyond = least(&self.waited_ns) - least(&self.waited_baseline_ns);
        (beyond > WAITED_NS.max(WAITED_SHARE * median(&self.candidate_ns))).then_some(beyond)
    }

    /// Times of one call of the candidate that count: with what it computed outside of its calls, as lone calls where calls in a row
    /// share work, and with the time for which it waits.
    pub(super) fn counted_candidate_ns(&self) -> Vec<f64> {
        let beside = self.overlap_ns + self.waits_ns().unwrap_or(0.0);
        self.candidate_ns.iter().map(|time| time + beside).collect()
    }

    /// Times of one call of the baseline that count: no slower than it was alone.
    pub(super) fn counted_baseline_ns(&self) -> Vec<f64> {
        let factor = match self.disturbed() {
            Some(share) => 1.0 / (1.0 + share),
            None => 1.0,
        };
        self.baseline_ns.iter().map(|time| time * factor).collect()
    }

    /// Returns the share by which the candidate slows the baseline down, where that is more than noise: half of the baseline's
    /// windows next to the candidate are slower than three quarters of those by itself. The median ratio cannot tell a program that
    /// slows fewer of them down. Of the times before the candidate was loaded and after it had ended the longer ones count: a baseline
    /// that is slower by itself is slowed down by the machine.
    pub(super) fn disturbed(&self) -> Option<f64> {
        let longer = median(&self.alone_after_ns) > median(&self.solo_ns);
        let alone = sorted(if longer { &self.alone_after_ns } else { &self.solo_ns });
        let beside = median(&self.baseline_ns);
        let share = beside / Some(median(&alone)).filter(|alone| *alone > 0.0)? - 1.0;
        (share > DISTURBED_SHARE && beside > quantile(&alone, 0.75)).then_some(share)
    }

    /// Returns whether something slowed the evaluator's operations around the baseline's calls down. It may do so around the candidate's,
    /// where such time counts.
    pub(super) fn is_disturbed_around_calls(&self) -> bool {
        median(&self.hidden_baseline_ns) > STEADY_SHARE * median(&self.baseline_ns)
    }

    /// Takes the baseline's times after the candidate had ended. They correct the measurement, which is not steady then.
    pub(super) fn take_alone_after(&mut self, times_ns: Vec<f64>) {
        self.steady = false;
        self.alone_after_ns = times_ns;
    }

    /// Returns the ratios of the pairs.
    pub(super) fn ratios(&self) -> Vec<f64> {
        let pairs = self.counted_baseline_ns().into_iter().zip(self.counted_candidate_ns());
        pairs.map(|(baseline, candidate)| baseline / candidate).collect()
    }

    /// Returns whether the program seems to compute outside of its calls, which the clock alone says.
    pub(super) fn accuses(&self) -> bool {
        self.outside_ns().is_some()
    }

    /// Returns the time for each call that is spent outside of it, where that is so long that it accuses the program.
    fn outside_ns(&self) -> Option<f64> {
        // The baseline's own windows show what the machine adds.
        let hidden = median(&self.hidden_ns) - median(&self.hidden_baseline_ns);
        (hidden > ACCUSED_NS.max(median(&self.candidate_ns) * ACCUSED_SHARE)).then_some(hidden)
    }

    /// Returns findings about times that were corrected, and about results that turned wrong.
    pub(super) fn corrections(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let call_ns = median(&self.candidate_ns);
        if let Some(hidden) = self.outside_ns() {
            let message = format!(
                "the program computes outside of its calls: {:.1} microseconds for each call, which takes {:.1} with them",
                hidden / 1e3,
                call_ns / 1e3
            );
            found.push(violation(WORK_OUTSIDE_CALL, message));
        }
        if let Some(waits) = self.waits_ns() {
            let message =
                format!("a call waits for {:.1} microseconds beside its processor time, and they count", waits / 1e3);
            found.push(warning("call_waits", message));
        }
        if let Some(share) = self.disturbed() {
            let message = format!(
                "the reference was {:.0} % slower next to the program than by itself: its time by itself counts",
                share * 100.0
            );
            found.push(warning("baseline_disturbed", message));
        }
        if self.turned_wrong {
            let message = "the program was right in the first calls of its measurement and wrong in all later ones";
            found.push(violation("late_skipping", message.to_owned()));
        }
        found
    }

    /// Returns the finding about calls in a row that share work.
    pub(super) fn overlap(&self) -> Option<Finding> {
        let message = format!(
            "a call by itself takes {:.1} microseconds more than one of several in a row: calls share work or overlap, and the time of a \
             call by itself counts",
            self.overlap_ns / 1e3
        );
        (self.overlap_ns > 0.0).then(|| warning("calls_overlap", message))
    }

    /// So many pairs do not count, for this reason.
    pub(super) fn reject(&mut self, pairs: usize, because: &str) {
        self.rejected = self.rejected.saturating_add(u32::try_from(pairs).unwrap_or(u32::MAX));
        if !self.rejected_because.iter().any(|known| known == because) {
            self.rejected_because.push(because.to_owned());
        }
    }

    /// Counts in the place of earlier times, none of which counts for this reason.
    pub(super) fn replaces(&mut self, earlier: &Self, because: &str) {
        self.reject(earlier.candidate_ns.len(), because);
        self.rejected = self.rejected.saturating_add(earlier.rejected);
        for reason in &earlier.rejected_because {
            self.reject(0, reason);
        }
        self.timed_calls += earlier.timed_calls;
        self.verified_calls += earlier.verified_calls;
        self.later_calls += earlier.later_calls;
        self.turned_wrong |= earlier.turned_wrong;
        self.alone += earlier.alone;
    }
}

impl PairTimes {
    /// Takes what calls after the timed ones showed.
    pub(super) fn take_later(&mut self, verifier: &OutputVerifier) {
        self.later_calls = verifier.after_warm_up().1 - self.verified_calls;
        (self.turned_wrong, self.wrong) = (verifier.turned_wrong(), verifier.is_over());
    }

    /// Returns whether so many calls were wrong that no more are made.
    pub(super) fn is_wrong(&self) -> bool {
        self.wrong
    }

    /// Adds what was subtracted too much from each window of the candidate and of the baseline, and from their lone calls.
    pub(super) fn give_back(
        &mut self,
        (of_candidate_ns, of_baseline_ns): (f64, f64),
        (of_lone_candidate_ns, of_lone_baseline_ns): (f64, f64),
    ) -> Result<(), Side> {
        for solo in &mut self.solo_ns {
            *solo += per_call(of_baseline_ns, self.calls);
        }
        for (times, too_much_ns) in
            [(&mut self.lone_candidate_ns, of_lone_candidate_ns), (&mut self.lone_baseline_ns, of_lone_baseline_ns)]
        {
            for time in times.iter_mut() {
                *time += too_much_ns;
            }
        }
        for (times, too_much_ns) in [(&mut self.candidate_ns, of_candidate_ns), (&mut self.baseline_ns, of_baseline_ns)]
        {
            let share = per_call(too_much_ns, self.calls);
            for time in times.iter_mut() {
                *time += share;
            }
            let of_time = share / median(times).max(1.0);
            self.steady &= of_time <= STEADY_SHARE;
            if of_time > MEANINGLESS_SHARE {
                let message = format!(
                    "a window without calls took {:.0} microseconds less after the measurement than before it: something else used \
                     the processor or the GPU meanwhile",
                    too_much_ns / 1e3
                );
                return Err(Side::Machine(StepFailure::retriable(DISTURBED, message)));
            }
        }
        Ok(())
    }

    /// Takes the pairs of a block.
    pub(super) fn take(&mut self, block: &[Pair], (candidate, baseline): &(Usual, Usual)) {
        for Pair { candidate: of_candidate, baseline: of_baseline, on_shared_core } in block {
            self.on_shared_core += u32::from(*on_shared_core);
            self.candidate_ns.push(per_call(of_candidate.net_ns(candidate), self.calls));
            self.baseline_ns.push(per_call(of_baseline.within_ns(baseline), self.calls));
            self.hidden_ns.push(per_call(of_candidate.hidden_ns(candidate), self.calls));
            self.hidden_baseline_ns.push(per_call(of_baseline.hidden_ns(baseline), self.calls));
            self.waited_ns.push(per_call(of_candidate.waited_ns, self.calls));
            self.waited_baseline_ns.push(per_call(of_baseline.waited_ns, self.calls));
            self.events_candidate_ns.push(per_call(of_candidate.events_ns, self.calls));
            self.events_baseline_ns.push(per_call(of_baseline.events_ns, self.calls));
        }
    }
}

/// Returns the time by which the candidate's calls by themselves take longer than in a row, beyond what the baseline's do and noise. The
/// shorter times of each of all pairs of processes count: there are few lone calls, and what disturbs them makes them longer.
pub(super) fn overlap_ns(all: &[PairTimes]) -> f64 {
    let of = |times: fn(&PairTimes) -> &Vec<f64>| -> Vec<f64> { all.iter().flat_map(times).copied().collect() };
    let lone = of(|pair| &pair.lone_candidate_ns);
    if lone.is_empty() {
        return 0.0;
    }
    let row = shorter(&of(|pair| &pair.candidate_ns));
    let of_baseline = shorter(&of(|pair| &pair.lone_baseline_ns)) - shorter(&of(|pair| &pair.baseline_ns));
    let allowed = OVERLAP_SHARE * row + OVERLAP_NS;
    (shorter(&lone) - row - of_baseline.max(0.0) - allowed).max(0.0)
}

/// Returns the time that a quarter of these times are below.
fn shorter(times: &[f64]) -> f64 {
    quantile(&sorted(times), 0.25)
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    times
}

#[cfg(test)]
pub(super) mod tests;
