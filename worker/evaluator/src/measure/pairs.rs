//! Timed pairs: one window of each program on the same inputs, in random order, while the other program is stopped.

use std::time::{Duration, Instant};

use nightshift_protocol::evidence::{VERIFIED_CALLS, VERIFIED_LARGE_CALLS};
use nightshift_protocol::task::LARGE_CALL_BYTES;
use nightshift_protocol::verdict::Finding;

use super::core_waits::CoreWaits;
use super::pair_times::{Pair, PairTimes};
use super::setup::Setup;
use super::verify::{OutputVerifier, late_outputs, prints};
use super::windows::time_window;
use super::{CONFIDENCE, MeasureOptions, Side};
use crate::breach::note;
use crate::memory::Memory;
use crate::phases::PhaseTimer;
use crate::program::context::DeviceMonitor;
use crate::runner::control::WindowKind;
use crate::statistics::bootstrap_median;

/// Pairs before those that count.
const WARM_UP_PAIRS: usize = 3;

/// Pairs between two lone calls of each program, where windows have several calls.
const PAIRS_PER_LONE: usize = 3;

/// Pairs that are judged by the device's conditions together.
const BLOCK: usize = 6;

/// Blocks that may be rejected; then pairs count as they are, and the measurement does not count as precise.
const MAX_REJECTED_BLOCKS: usize = 6;

/// Maximum number of pairs that a pair of processes leaves out because something else computed on the programs' core, and the reason in the evidence.
const MAX_LEFT_OUT: usize = 24;
const SHARED_CORE: &str = "something else computed on the physical core of the host that the programs ran on";

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

/// One in this many windows is searched for broken rules, by chance: a program cannot know which.
pub(super) const SEARCHED_WINDOWS: usize = 4;

/// Times pairs until the ratio is precise or the time is over.
pub(super) fn time_pairs<M: Memory>(
    setup: &mut Setup<'_, M>,
    options: &MeasureOptions,
    findings: &mut Vec<Finding>,
    timer: &mut PhaseTimer,
) -> Result<(PairTimes, OutputVerifier), Side> {
    let candidate_ns = setup.pilot()?;
    let calls = setup.choose_calls(candidate_ns);
    let usual = setup.usual(WindowKind::Calls, calls)?;
    let usual_lone = if calls > 1 { Some(setup.usual(WindowKind::CallInOrder, 1)?) } else { None };
    timer.end("usual times");
    let monitor = setup.context.device().and_then(|device| device.monitor);
    let observe = || monitor.and_then(DeviceMonitor::observe);
    let mut before = observe();
    let verifier = OutputVerifier::new(setup.limits, &setup.shapes.outputs);
    let mut pairs = Pairs { setup, verifier, is_searched: false, waits: CoreWaits::default(), left_out: 0 };
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
    pairs.verifier.end_warm_up();
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
            let pair = pairs.pair(WindowKind::Calls, calls, findings)?;
            if pair.on_shared_core && pairs.may_leave_out() {
                pairs.left_out += 1;
                times.reject(1, SHARED_CORE);
            } else {
                block.push(pair);
            }
            if let (0, Some(usual)) = (position % PAIRS_PER_LONE, &usual_lone) {
                let pair = pairs.pair(WindowKind::CallInOrder, 1, findings)?;
                if !pair.on_shared_core || !pairs.may_leave_out() {
                    lone.push((pair.candidate.net_ns(&usual.0), pair.baseline.within_ns(&usual.1)));
                }
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
            times.reject(block.len(), &reason);
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
        let too_much_ns = setup.subtracted_too_much(WindowKind::Calls, calls)?;
        let too_much_lone_ns =
            if calls > 1 { setup.subtracted_too_much(WindowKind::CallInOrder, 1)? } else { (0.0, 0.0) };
        times.give_back(too_much_ns, too_much_lone_ns)?;
    }
    times.steady &= !times.is_disturbed_around_calls();
    (times.timed_calls, times.verified_calls) = verifier.after_warm_up();
    (times.turned_wrong, times.wrong) = (verifier.turned_wrong(), verifier.is_over());
    timer.end("pairs");
    Ok((times, verifier))
}

/// Pairs in progress.
struct Pairs<'s, 'a, M: Memory> {
    setup: &'s mut Setup<'a, M>,
    verifier: OutputVerifier,
    /// Whether a window was searched for broken rules.
    is_searched: bool,
    /// Of the windows of a block on a device.
    waits: CoreWaits,
    /// Pairs that did not count because something else computed on the programs' core.
    left_out: usize,
}

impl<M: Memory> Pairs<'_, '_, M> {
    /// Returns whether the evaluator may leave out another pair that ran on a shared core.
    fn may_leave_out(&self) -> bool {
        self.left_out < MAX_LEFT_OUT && self.setup.program_cores.has_patience()
    }

    /// Returns whether enough timed calls were wrong.
    fn is_over(&self) -> bool {
        self.verifier.is_over()
    }

    /// Times one window of each program on the same inputs, in random order, and compares the outputs.
    fn pair(&mut self, kind: WindowKind, calls: usize, findings: &mut Vec<Finding>) -> Result<Pair, Side> {
        let on_device = self.setup.on_device();
        let inputs = self.setup.draw(calls);
        let Setup { memory, seeds, candidate, baseline, program_cores, .. } = &mut *self.setup;
        let memory = *memory;
        let core = program_cores.choose();
        if core.is_another {
            candidate.process.move_to(program_cores.in_order(), true);
            baseline.process.move_to(program_cores.in_order(), true);
        }
        let waits = &mut self.waits;
        let mut of_baseline = || {
            if !on_device {
                return time_window(memory, baseline, kind, &inputs, on_device).map_err(Side::Baseline);
            }
            waits
                .during(baseline, |baseline| time_window(memory, baseline, kind, &inputs, on_device))
                .map_err(Side::Baseline)
        };
        let (candidate_times, on_shared_core, baseline_times) = if seeds.flip() {
            let first = time_window(memory, candidate, kind, &inputs, on_device).map_err(Side::Candidate)?;
            // Its process is stopped, and what it left on the device could go on while the baseline is timed.
            let is_watched = on_device && seeds.below(SEARCHED_WINDOWS) == 0;
            let printed = is_watched.then(|| prints(memory, candidate, calls)).transpose()?;
            let times = (first, program_cores.is_shared(), of_baseline()?);
            if let Some(printed) = printed
                && printed != prints(memory, candidate, calls)?
            {
                note(findings, late_outputs());
            }
            times
        } else {
            let first = of_baseline()?;
            let between = program_cores.is_shared();
            (time_window(memory, candidate, kind, &inputs, on_device).map_err(Side::Candidate)?, between, first)
        };
        let on_shared_core = core.is_shared || on_shared_core || program_cores.is_shared();
        self.verifier.verify(memory, candidate, |call| baseline.outputs(call), calls, findings)?;
        let was_searched = std::mem::replace(&mut self.is_searched, true);
        if !was_searched || seeds.below(SEARCHED_WINDOWS) == 0 {
            for breach in candidate.breaches(memory, calls).map_err(Side::Candidate)? {
                note(findings, breach.finding());
            }
        }
        Ok(Pair { candidate: candidate_times, baseline: baseline_times, on_shared_core })
    }
}
