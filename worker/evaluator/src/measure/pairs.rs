//! Timed pairs: one window of each program on the same inputs, in random order, while the other program is stopped.

use std::time::{Duration, Instant};

use nightshift_protocol::evidence::{VERIFIED_CALLS, VERIFIED_LARGE_CALLS};
use nightshift_protocol::measurement::DeviceConditions;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::LARGE_CALL_BYTES;
use nightshift_protocol::verdict::Finding;

use super::core_waits::CoreWaits;
use super::setup::Setup;
use super::verify::OutputVerifier;
use super::windows::{Usual, WindowTimes, per_call, time_window};
use super::{CONFIDENCE, DISTURBED, MeasureOptions, Side};
use crate::breach::{note, violation, warning};
use crate::memory::Memory;
use crate::phases::PhaseTimer;
use crate::program::context::DeviceMonitor;
use crate::runner::control::WindowKind;
use crate::statistics::{bootstrap_median, median, quantile};

/// The code of work outside of calls.
pub(super) const WORK_OUTSIDE_CALL: &str = "work_outside_call";

/// Pairs before those that count.
const WARM_UP_PAIRS: usize = 3;

/// Pairs between two lone calls of each program, where windows have several calls.
const PAIRS_PER_LONE: usize = 3;

/// Pairs that are judged by the device's conditions together.
const BLOCK: usize = 6;

/// Blocks that may be rejected; then pairs count as they are, and the measurement does not count as precise.
const MAX_REJECTED_BLOCKS: usize = 6;

/// Below this, pairs of a first measurement are timed whatever the time limit says.
const FEWEST_PAIRS: usize = 3;

/// The same of a confirmation, so that as many timed calls are verified, and where a call moves more than a gibibyte.
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
const CONFIRMED_PAIRS: (usize, usize) = (VERIFIED_CALLS as usize, VERIFIED_LARGE_CALLS as usize);

/// Past this many times the time limit, even the wanted smallest number of pairs is given up.
const OVERTIME: u32 = 3;

/// Resamples of the interval that decides whether to go on.
const INTERIM_RESAMPLES: usize = 200;

/// Share of the wanted width of the interval at which a pair of processes has windows enough: what differs between such pairs adds
/// to it.
const OWN_SHARE: f64 = 0.5;

/// One window of so many is searched for broken rules.
const SEARCHED_WINDOWS: usize = 4;

/// A lone call may take this share of a call in a row more than the call in the row, and what the baseline's lone calls take more, and
/// so many nanoseconds: what is beyond was computed for several calls at once, or at the same time.
const OVERLAP_SHARE: f64 = 0.25;
const OVERLAP_NS: f64 = 5_000.0;

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
    /// Device time of one call by events, as the processes tell.
    pub(super) events_candidate_ns: Vec<f64>,
    pub(super) events_baseline_ns: Vec<f64>,
    /// Time of one call that the candidate computed outside of its calls.
    hidden_ns: Vec<f64>,
    /// The same of the baseline, which computes nothing outside of them.
    hidden_baseline_ns: Vec<f64>,
    /// On the host: time of one call of each in which its process did not compute.
    waited_ns: Vec<f64>,
    waited_baseline_ns: Vec<f64>,
    /// The baseline's times of one call while the candidate was not loaded.
    solo_ns: Vec<f64>,
    /// The same after the candidate had ended, where the baseline was slower next to it.
    alone_after_ns: Vec<f64>,
    pub(super) timed_calls: u64,
    pub(super) verified_calls: u64,
    /// Verified calls after the timed ones.
    pub(super) later_calls: u64,
    turned_wrong: bool,
    pub(super) wrong: bool,
    pub(super) conditions: Option<DeviceConditions>,
    pub(super) rejected: u32,
    pub(super) rejected_because: Vec<String>,
    pub(super) steady: bool,
    pub(super) alone: Duration,
}

impl PairTimes {
    /// What one call of the candidate takes more when calls do not follow each other, beyond the same for the baseline.
    fn overlap_ns(&self) -> Option<f64> {
        if self.lone_candidate_ns.is_empty() {
            return None;
        }
        let (row, lone) = (median(&self.candidate_ns), median(&self.lone_candidate_ns));
        let of_baseline = (median(&self.lone_baseline_ns) - median(&self.baseline_ns)).max(0.0);
        let beyond = lone - row - of_baseline * 1.5;
        (beyond > OVERLAP_SHARE * row + OVERLAP_NS).then_some(beyond)
    }

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
        let beside = self.overlap_ns().unwrap_or(0.0) + self.waits_ns().unwrap_or(0.0);
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

    /// Returns the share by which the candidate slows the baseline down, where that is more than noise: three quarters of the
    /// baseline's windows next to the candidate are slower than three quarters of those by itself. Of the times before the candidate
    /// was loaded and after it had ended the longer ones count: a baseline that is slower by itself is slowed down by the machine.
    pub(super) fn disturbed(&self) -> Option<f64> {
        let sorted = |times: &[f64]| {
            let mut times = times.to_vec();
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let longer = median(&self.alone_after_ns) > median(&self.solo_ns);
        let alone = sorted(if longer { &self.alone_after_ns } else { &self.solo_ns });
        let with_candidate = sorted(&self.baseline_ns);
        let share = median(&with_candidate) / Some(median(&alone)).filter(|alone| *alone > 0.0)? - 1.0;
        (share > DISTURBED_SHARE && quantile(&with_candidate, 0.25) > quantile(&alone, 0.75)).then_some(share)
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
        if let Some(overlap) = self.overlap_ns() {
            let message = format!(
                "a call by itself takes {:.1} microseconds more than one of several in a row: calls share work or overlap, and the \
                 time of a call by itself counts",
                overlap / 1e3
            );
            found.push(warning("calls_overlap", message));
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

    /// Counts in the place of earlier times, none of which counts for this reason.
    pub(super) fn replaces(&mut self, earlier: &Self, because: &str) {
        let pairs = u32::try_from(earlier.candidate_ns.len()).unwrap_or(u32::MAX);
        self.rejected = self.rejected.saturating_add(earlier.rejected).saturating_add(pairs);
        for reason in earlier.rejected_because.iter().cloned().chain([because.to_owned()]) {
            if !self.rejected_because.contains(&reason) {
                self.rejected_because.push(reason);
            }
        }
        self.timed_calls += earlier.timed_calls;
        self.verified_calls += earlier.verified_calls;
        self.later_calls += earlier.later_calls;
        self.turned_wrong |= earlier.turned_wrong;
        self.alone += earlier.alone;
    }
}

/// Times pairs until the ratio is precise or the time is over.
pub(super) fn time_pairs<M: Memory>(
    setup: &mut Setup<'_, M>,
    options: &MeasureOptions,
    findings: &mut Vec<Finding>,
    timer: &mut PhaseTimer,
) -> Result<(PairTimes, OutputVerifier), Side> {
    let candidate_ns = setup.pilot()?;
    let calls = setup.choose_calls(candidate_ns);
    let usual = setup.usual(calls)?;
    let usual_lone = if calls > 1 { Some(setup.usual(1)?) } else { None };
    timer.end("usual times");
    let monitor = setup.context.device().and_then(|device| device.monitor);
    let observe = || monitor.and_then(DeviceMonitor::observe);
    let mut before = observe();
    let verifier = OutputVerifier::new(setup.limits);
    let mut pairs = Pairs { setup, verifier, windows: 0, waits: CoreWaits::default() };
    let mut times = PairTimes {
        calls,
        solo_ns: pairs.setup.solo_ns(calls),
        conditions: before.as_ref().map(|observed| observed.conditions.clone()),
        steady: true,
        ..PairTimes::default()
    };
    for _ in 0..WARM_UP_PAIRS {
        pairs.pair(WindowKind::Calls, calls, findings)?;
    }
    let (limit, started) = (Duration::from_millis(options.max_wall_ms), Instant::now());
    let of_all = match (options.confirms, pairs.setup.call_bytes() > LARGE_CALL_BYTES) {
        (false, _) => FEWEST_PAIRS,
        (true, false) => CONFIRMED_PAIRS.0,
        (true, true) => CONFIRMED_PAIRS.1,
    };
    let fewest = of_all.div_ceil(options.process_pairs.max(1));
    let mut rejected_blocks = 0;
    while !pairs.is_over() {
        let mut block = Vec::with_capacity(BLOCK);
        let mut lone = Vec::new();
        pairs.waits = CoreWaits::default();
        for position in 0..BLOCK {
            block.push(pairs.pair(WindowKind::Calls, calls, findings)?);
            if let (0, Some(usual)) = (position % PAIRS_PER_LONE, &usual_lone) {
                let (candidate, baseline) = pairs.pair(WindowKind::CallInOrder, 1, findings)?;
                lone.push((candidate.net_ns(&usual.0), baseline.net_ns(&usual.1)));
            }
            if pairs.is_over() {
                break;
            }
        }
        let after = observe();
        let changed = after.as_ref().zip(before.as_ref()).and_then(|(after, before)| after.changed_since(before));
        before = after;
        let waited = pairs.waits.disturbance();
        let has_reserved_cores = pairs.setup.context.cores().is_some();
        times.steady &= has_reserved_cores || waited.is_none();
        let changed = changed.or(waited.filter(|_| has_reserved_cores));
        if let Some(reason) = changed.filter(|_| rejected_blocks < MAX_REJECTED_BLOCKS) {
            rejected_blocks += 1;
            times.steady &= rejected_blocks < MAX_REJECTED_BLOCKS;
            times.rejected += u32::try_from(block.len()).unwrap_or(u32::MAX);
            if !times.rejected_because.contains(&reason) {
                times.rejected_because.push(reason);
            }
            continue;
        }
        times.take(&block, &usual);
        for (of_candidate, of_baseline) in lone {
            times.lone_candidate_ns.push(of_candidate);
            times.lone_baseline_ns.push(of_baseline);
        }
        let (count, elapsed) = (times.candidate_ns.len(), started.elapsed());
        let enough = count >= options.min_windows.max(fewest);
        if count >= options.max_windows.max(fewest)
            || (count >= fewest && ((enough && elapsed > limit) || elapsed > limit * OVERTIME))
        {
            break;
        }
        if enough {
            let interim = bootstrap_median(&times.ratios(), CONFIDENCE, INTERIM_RESAMPLES);
            if interim.relative_half_width() <= options.wanted_relative_half_width * OWN_SHARE {
                break;
            }
        }
    }
    if times.candidate_ns.is_empty() {
        // Sampling ended because of wrong outputs: one pair tells what there is to tell.
        let pair = pairs.pair(WindowKind::Calls, calls, findings)?;
        times.take(&[pair], &usual);
    }
    let verifier = pairs.verifier;
    if !verifier.is_over() {
        let too_much_ns = setup.subtracted_too_much(calls)?;
        let too_much_lone_ns = if calls > 1 { setup.subtracted_too_much(1)? } else { (0.0, 0.0) };
        times.give_back(too_much_ns, too_much_lone_ns)?;
    }
    (times.timed_calls, times.verified_calls) = (verifier.made, verifier.verified);
    (times.turned_wrong, times.wrong) = (verifier.turned_wrong(), verifier.is_over());
    timer.end("pairs");
    Ok((times, verifier))
}

impl PairTimes {
    /// Takes what calls after the timed ones showed.
    pub(super) fn take_later(&mut self, verifier: &OutputVerifier) {
        self.later_calls = verifier.verified - self.verified_calls;
        (self.turned_wrong, self.wrong) = (verifier.turned_wrong(), verifier.is_over());
    }

    /// Returns whether so many calls were wrong that no more are made.
    pub(super) fn is_wrong(&self) -> bool {
        self.wrong
    }

    /// Adds what was subtracted too much from each window of the candidate and of the baseline, and from their lone calls.
    fn give_back(
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
    fn take(&mut self, block: &[(WindowTimes, WindowTimes)], (candidate, baseline): &(Usual, Usual)) {
        for (of_candidate, of_baseline) in block {
            self.candidate_ns.push(per_call(of_candidate.net_ns(candidate), self.calls));
            self.baseline_ns.push(per_call(of_baseline.net_ns(baseline), self.calls));
            self.hidden_ns.push(per_call(of_candidate.hidden_ns(candidate), self.calls));
            self.hidden_baseline_ns.push(per_call(of_baseline.hidden_ns(baseline), self.calls));
            self.waited_ns.push(per_call(of_candidate.waited_ns, self.calls));
            self.waited_baseline_ns.push(per_call(of_baseline.waited_ns, self.calls));
            self.events_candidate_ns.push(per_call(of_candidate.events_ns, self.calls));
            self.events_baseline_ns.push(per_call(of_baseline.events_ns, self.calls));
        }
    }
}

/// Pairs in progress.
struct Pairs<'s, 'a, M: Memory> {
    setup: &'s mut Setup<'a, M>,
    verifier: OutputVerifier,
    windows: usize,
    /// Of the windows of a block on a device.
    waits: CoreWaits,
}

impl<M: Memory> Pairs<'_, '_, M> {
    /// Whether enough timed calls were wrong.
    fn is_over(&self) -> bool {
        self.verifier.is_over()
    }

    /// One window of each program on the same inputs, in random order. Compares what came out.
    fn pair(
        &mut self,
        kind: WindowKind,
        calls: usize,
        findings: &mut Vec<Finding>,
    ) -> Result<(WindowTimes, WindowTimes), Side> {
        let on_device = self.setup.on_device();
        let inputs = self.setup.draw(calls);
        let Setup { memory, seeds, candidate, baseline, .. } = &mut *self.setup;
        let memory = *memory;
        let mut of_candidate = || time_window(memory, candidate, kind, &inputs, on_device).map_err(Side::Candidate);
        let waits = &mut self.waits;
        let mut of_baseline = || {
            if !on_device {
                return time_window(memory, baseline, kind, &inputs, on_device).map_err(Side::Baseline);
            }
            waits
                .during(baseline, |baseline| time_window(memory, baseline, kind, &inputs, on_device))
                .map_err(Side::Baseline)
        };
        let (candidate_times, baseline_times) = if seeds.flip() {
            let first = of_candidate()?;
            (first, of_baseline()?)
        } else {
            let first = of_baseline()?;
            (of_candidate()?, first)
        };
        self.verifier.verify(memory, candidate, |call| baseline.outputs(call), calls, findings)?;
        self.windows += 1;
        if self.windows % SEARCHED_WINDOWS == 1 {
            for breach in candidate.breaches(memory, calls).map_err(Side::Candidate)? {
                note(findings, breach.finding());
            }
        }
        Ok((candidate_times, baseline_times))
    }
}

#[cfg(test)]
pub(super) mod tests;
