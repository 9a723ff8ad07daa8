//! A timed window: the evaluator writes the inputs, starts the calls, and observes their end.
//!
//! On a device the driver lets one context compute at a time. So the evaluator's own operations, before and after the calls, take
//! longer when the program computes outside of its window, and show such work without asking the program. Their usual times come
//! from windows of trusted processes in which no program is called.

use std::time::Instant;

use super::Side;
use crate::draw::{Draw, InputKind};
use crate::memory::Memory;
use crate::program::{Program, ProgramError, Window};
use crate::runner::control::WindowKind;
use crate::seeds::SecretSeeds;
use crate::statistics::{as_float, median, quantile};

/// Excess of the evaluator's operations that counts as noise, in nanoseconds: another context's work costs them the switch of
/// contexts at least, which takes a hundred microseconds.
const NOISE_NS: f64 = 5_000.0;

/// The same as a multiple of how much the operations vary in trusted windows.
const NOISE_SPREADS: f64 = 8.0;

/// Excess of the time in which the process was stopped that counts by itself, in nanoseconds. A thread that is in the kernel stops
/// later, and what the program left on the device runs on until then.
const LATE_STOP_NS: f64 = 2e6;

/// A call that takes less than this is led by another one: after a stop it would find the caches of the processor cold, and take
/// longer than calls that follow each other, as they do where programs are used.
const LED_NS: f64 = 1e7;

/// Empty windows that tell the usual times.
const EMPTY_WINDOWS: usize = 6;

/// Times of one window in nanoseconds, by the evaluator's clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(clippy::struct_field_names, reason = "every time tells its unit")]
pub(super) struct WindowTimes {
    /// From the first operation that puts inputs in place until all of them are done.
    prepare_ns: f64,
    /// From the command to the answer. On the host: processor time that the kernel counts for the process while it is not stopped,
    /// where it tells; it does not depend on what else the machine does, and a program that works before or after its calls pays
    /// for it.
    calls_ns: f64,
    /// The smallest operation right after the answer.
    after_ns: f64,
    /// From its end until the process was stopped.
    stopping_ns: f64,
    /// The smallest operation once the process was stopped.
    stopped_ns: f64,
    /// Between the device's events around the calls, as the process tells: evidence only.
    pub(super) events_ns: f64,
    /// On the host: from the command to the answer, without the processor time, and without the time for which the process was ready to
    /// run and waited for a core.
    pub(super) waited_ns: f64,
}

/// The usual times of windows without a program.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Usual {
    prepare: Typical,
    calls: Typical,
    after: Typical,
    stopping: Typical,
    stopped: Typical,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Typical {
    median_ns: f64,
    /// Between the quartiles: one window of six that was disturbed allows nothing.
    spread_ns: f64,
}

impl Typical {
    fn of(times: impl Iterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.collect();
        times.sort_unstable_by(f64::total_cmp);
        if times.is_empty() {
            return Self::default();
        }
        Self { median_ns: median(&times), spread_ns: quantile(&times, 0.75) - quantile(&times, 0.25) }
    }

    /// Returns what a time is beyond the usual one, and nothing for noise.
    fn excess_ns(self, time_ns: f64) -> f64 {
        let excess = time_ns - self.median_ns;
        if excess > NOISE_NS.max(NOISE_SPREADS * self.spread_ns) { excess } else { 0.0 }
    }
}

impl Usual {
    /// The one that was less disturbed.
    fn quieter(self, other: Self) -> Self {
        if other.calls.median_ns < self.calls.median_ns { other } else { self }
    }

    /// By how many nanoseconds a window without calls takes longer than at another time.
    fn longer_ns(&self, than: &Self) -> f64 {
        self.calls.median_ns - than.calls.median_ns
    }

    /// The same, and nothing for noise.
    pub(super) fn too_much_ns(&self, now: &Self) -> f64 {
        Some(self.longer_ns(now)).filter(|longer| *longer > AGREEMENT_NS).unwrap_or(0.0)
    }

    /// Returns the usual times of these windows.
    pub(super) fn of(windows: &[WindowTimes]) -> Self {
        let all = |part: fn(&WindowTimes) -> f64| Typical::of(windows.iter().map(part));
        Self {
            prepare: all(|window| window.prepare_ns),
            calls: all(|window| window.calls_ns),
            after: all(|window| window.after_ns),
            stopping: all(|window| window.stopping_ns),
            stopped: all(|window| window.stopped_ns),
        }
    }
}

impl WindowTimes {
    /// Returns the time that the program computed outside of its calls.
    pub(super) fn hidden_ns(&self, usual: &Usual) -> f64 {
        let stopped = usual.stopped.excess_ns(self.stopped_ns);
        let stopping = usual.stopping.excess_ns(self.stopping_ns);
        // How soon a process stops depends on the machine. It counts if the device then has to leave another context, which computed
        // until then, or if it took so long that copies, which leave no trace, are worth it.
        let stopping = if stopped > 0.0 || stopping > LATE_STOP_NS { stopping } else { 0.0 };
        usual.prepare.excess_ns(self.prepare_ns) + usual.after.excess_ns(self.after_ns) + stopping + stopped
    }

    /// Returns the time of the calls, without what was computed outside of them. So much counts of a trusted program: what slows the
    /// evaluator's operations down around its calls is not its work.
    pub(super) fn within_ns(&self, usual: &Usual) -> f64 {
        (self.calls_ns - usual.calls.median_ns).max(1.0)
    }

    /// Returns the time of the calls, with what was computed outside of them.
    pub(super) fn net_ns(&self, usual: &Usual) -> f64 {
        self.within_ns(usual) + self.hidden_ns(usual)
    }
}

/// Draws of the inputs of so many calls, which several programs are given.
pub(super) fn draws_of(calls: usize, inputs: usize, seeds: &mut SecretSeeds) -> Vec<Vec<Draw>> {
    (0..calls).map(|_| Draw::all(inputs, seeds.draw(), InputKind::Declared)).collect()
}

/// The calls of one window.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    /// Draws of the inputs of each call. Calls beyond them use the same again.
    draws: Vec<Vec<Draw>>,
    /// Number of calls.
    calls: usize,
    /// Draws of the inputs of untimed calls before them.
    leads: Vec<Vec<Draw>>,
}

impl Inputs {
    /// Draws inputs for so many calls of a program that has so many inputs, and for others before them where a call is expected to
    /// take so short a time that this matters. Before a single call there are one or two: a program cannot tell which one is timed.
    pub(super) fn draw(calls: usize, inputs: usize, call_ns: f64, seeds: &mut SecretSeeds) -> Self {
        let leads = match (call_ns < LED_NS, calls) {
            (false, _) => 0,
            (true, 1) => 1 + usize::from(seeds.flip()),
            (true, _) => 1,
        };
        Self { leads: draws_of(leads, inputs, seeds), draws: draws_of(calls, inputs, seeds), calls }
    }

    /// The same for one call, on whose inputs so many calls are made.
    fn repeated(self, calls: usize) -> Self {
        Self { calls, ..self }
    }
}

/// Carries out one window of calls, whose inputs are drawn in turn. The program is stopped before and after.
///
/// On a device it goes on before the inputs are put in place, so that what it computes meanwhile is seen. On the host it goes on for
/// the calls alone, and the processor time of all its threads is counted until it is stopped again.
pub(super) fn time_window<M: Memory>(
    memory: &M,
    program: &mut Program<M>,
    kind: WindowKind,
    inputs: &Inputs,
    on_device: bool,
) -> Result<WindowTimes, ProgramError> {
    let Inputs { draws, calls: count, leads } = inputs;
    let count = *count;
    program.renew_poison(memory)?;
    if on_device {
        program.process.thaw()?;
        for draws in leads {
            // Where no program is called, none sees inputs.
            if kind.calls_program() {
                program.prepare(memory, 0, draws)?;
            }
            // As before the calls that are timed: neither inputs nor a clock tell which call is the last one.
            memory.flush_caches()?;
            memory.null_operation()?;
            program.window(if kind.calls_program() { WindowKind::Calls } else { WindowKind::Empty }, 1)?;
            // The outputs of the next call get a pattern that the program has not seen.
            program.renew_poison(memory)?;
        }
    }
    let started = Instant::now();
    for (call, draws) in draws.iter().enumerate() {
        program.prepare(memory, call, draws)?;
    }
    memory.flush_caches()?;
    memory.null_operation()?;
    let prepare_ns = nanoseconds(started.elapsed());
    let before = if on_device { None } else { program.processor_time() };
    let queued = if on_device { None } else { program.process.waited() };
    program.process.thaw()?;
    let window: Window = match (on_device, kind) {
        (true, kind) => program.window(kind, count)?,
        (false, kind) if kind.calls_program() => program.call(count)?,
        (false, _) => program.empty(count)?,
    };
    let queued = queued.and_then(|before| Some(program.process.waited()?.saturating_sub(before)));
    let after_ns = nanoseconds(memory.null_operation()?);
    let stopping = Instant::now();
    program.process.freeze()?;
    let stopping_ns = nanoseconds(stopping.elapsed());
    let stopped_ns = nanoseconds(memory.null_operation()?);
    #[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^53 nanoseconds")]
    let events_ns = window.events_ns as f64;
    let Some((before, after)) = before.zip(program.processor_time()) else {
        let calls_ns = nanoseconds(window.elapsed);
        return Ok(WindowTimes { prepare_ns, calls_ns, after_ns, stopping_ns, stopped_ns, events_ns, waited_ns: 0.0 });
    };
    // All that the process did is in it; what the evaluator's operations took says how busy the machine is.
    let worked = after.saturating_sub(before);
    // A program that is ready to run does not wait by itself: other work has its core.
    let waited_ns = nanoseconds(window.elapsed.saturating_sub(worked).saturating_sub(queued.unwrap_or_default()));
    Ok(WindowTimes { calls_ns: nanoseconds(worked), events_ns, waited_ns, ..WindowTimes::default() })
}

/// Calls a program once for each set of inputs, untimed. It is stopped before and after.
pub(super) fn untimed_window<M: Memory>(
    memory: &M,
    program: &mut Program<M>,
    draws: &[Vec<Draw>],
    on_device: bool,
) -> Result<(), ProgramError> {
    for (call, draws) in draws.iter().enumerate() {
        program.prepare(memory, call, draws)?;
    }
    memory.null_operation()?;
    program.process.thaw()?;
    if on_device {
        program.window(WindowKind::Calls, draws.len())?;
    } else {
        program.call(draws.len())?;
    }
    program.process.freeze()
}

/// Finds the usual times of windows of this kind, whose inputs are drawn by this function, in a process that no model's code runs in.
pub(super) fn usual_times<M: Memory>(
    memory: &M,
    trusted: &mut Program<M>,
    kind: WindowKind,
    draw: &mut dyn FnMut() -> Inputs,
    on_device: bool,
) -> Result<Usual, Side> {
    let mut windows = Vec::with_capacity(EMPTY_WINDOWS);
    for _ in 0..=EMPTY_WINDOWS {
        let window = time_window(memory, trusted, kind.without_program(), &draw(), on_device);
        windows.push(window.map_err(Side::Baseline)?);
    }
    // The first one finds everything cold.
    Ok(Usual::of(&windows[1..]))
}

/// Maximum number of rounds in which usual times are looked for, and the nanoseconds within which two of them agree. For windows of the
/// baseline that take long it is a share of them, up to a limit: windows of the program may be much shorter.
const ROUNDS: usize = 5;
const AGREEMENT_NS: f64 = 3_000.0;
const AGREEMENT_SHARE: f64 = 1e-3;
const MAX_AGREEMENT_NS: f64 = 10_000.0;

fn agreement_ns(window_ns: f64) -> f64 {
    (AGREEMENT_SHARE * window_ns).clamp(AGREEMENT_NS, MAX_AGREEMENT_NS)
}

/// The same where nothing of the candidate runs, for windows whose calls take about so many nanoseconds. A disturbance makes windows longer,
/// so the quietest of several rounds counts, once another one agrees with it.
pub(super) fn quietest_times<M: Memory>(
    memory: &M,
    trusted: &mut Program<M>,
    kind: WindowKind,
    draw: &mut dyn FnMut() -> Inputs,
    window_ns: f64,
) -> Result<Usual, Side> {
    let agreement_ns = agreement_ns(window_ns);
    let mut quietest = usual_times(memory, trusted, kind, draw, true)?;
    for _ in 1..ROUNDS {
        let usual = usual_times(memory, trusted, kind, draw, true)?;
        let agree = usual.longer_ns(&quietest).abs() < agreement_ns;
        quietest = quietest.quieter(usual);
        if agree {
            break;
        }
    }
    Ok(quietest)
}

/// Time that the calls of a window take at least where a trusted program is timed by itself, in nanoseconds, and most calls.
const TRUSTED_WINDOW_NS: f64 = 2e5;
const TRUSTED_CALLS: usize = 64;

/// Returns the median time of one call of a trusted program at its shape in use, in nanoseconds. Short calls are timed in a row, on the
/// same inputs.
pub(crate) fn median_call_ns<M: Memory>(
    memory: &M,
    program: &mut Program<M>,
    inputs: usize,
    seeds: &mut SecretSeeds,
    (on_device, windows): (bool, usize),
) -> Result<f64, ProgramError> {
    if on_device {
        program.enter_windows()?;
    }
    let mut time = |calls: usize, windows: usize, call_ns: f64| -> Result<f64, ProgramError> {
        let (mut times, mut empties) = (Vec::new(), Vec::new());
        for _ in 0..windows.max(1) {
            let inputs = Inputs::draw(1, inputs, call_ns, seeds).repeated(calls);
            empties.push(time_window(memory, program, WindowKind::Empty, &inputs, on_device)?);
            times.push(time_window(memory, program, WindowKind::Calls, &inputs, on_device)?);
        }
        let usual = Usual::of(&empties);
        let times: Vec<f64> = times.iter().map(|window| per_call(window.within_ns(&usual), calls)).collect();
        Ok(median(&times))
    };
    // On a device a first call tells whether the next ones are led.
    let first_ns = if on_device { time(1, 1, f64::INFINITY)? } else { f64::INFINITY };
    let mut call_ns = time(1, windows, first_ns)?;
    if call_ns < TRUSTED_WINDOW_NS {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast saturates, and no number is 0"
        )]
        let calls = (TRUSTED_WINDOW_NS / call_ns.max(1.0)).ceil() as usize;
        call_ns = time(calls.clamp(2, TRUSTED_CALLS), windows, call_ns)?;
    }
    program.process.thaw()?;
    if on_device {
        program.leave_windows()?;
    }
    Ok(call_ns)
}

fn nanoseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

/// Returns the time of one of so many calls.
pub(super) fn per_call(time_ns: f64, calls: usize) -> f64 {
    time_ns / as_float(calls.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(prepare_ns: f64, calls_ns: f64, after_ns: f64, stopped_ns: f64) -> WindowTimes {
        WindowTimes { prepare_ns, calls_ns, after_ns, stopped_ns, ..WindowTimes::default() }
    }

    fn usual() -> Usual {
        let times = [0.0, 300.0, 600.0, 900.0, 1200.0];
        Usual::of(&times.map(|noise| window(200_000.0 + noise, 146_000.0 + noise, 141_000.0 + noise, 6_000.0)))
    }

    #[test]
    fn a_program_cannot_tell_a_lead_from_the_only_call_of_a_window() {
        let Ok(mut seeds) = SecretSeeds::from_os() else { panic!("random numbers") };
        let mut leads = |calls, call_ns| -> std::collections::BTreeSet<usize> {
            (0..64).map(|_| Inputs::draw(calls, 1, call_ns, &mut seeds).leads.len()).collect()
        };
        assert_eq!(leads(1, 1e6), [1, 2].into());
        assert_eq!(leads(8, 1e5), [1].into());
        assert_eq!(leads(1, 1e8), [0].into(), "a long call finds warm caches soon enough");
    }

    #[test]
    fn noise_is_no_hidden_time() {
        let honest = window(203_000.0, 1_146_600.0, 143_000.0, 7_000.0);
        assert!(honest.hidden_ns(&usual()).abs() < 1.0);
        assert!((honest.net_ns(&usual()) - 1_000_000.0).abs() < 1.0);
    }

    #[test]
    fn work_outside_of_the_calls_is_added_in_full() {
        for (late, expected) in [
            (window(2_400_600.0, 300_000.0, 141_600.0, 6_000.0), 2_200_000.0),
            (window(200_600.0, 300_000.0, 2_071_600.0, 6_000.0), 1_930_000.0),
            (window(200_600.0, 300_000.0, 141_600.0, 156_000.0), 150_000.0),
        ] {
            assert!((late.hidden_ns(&usual()) - expected).abs() < 1_000.0, "{late:?}");
            assert!(late.net_ns(&usual()) > expected);
            let within = late.within_ns(&usual());
            assert!((within - 153_400.0).abs() < 1_000.0, "a baseline does not take longer by it: {within}");
        }
    }

    #[test]
    fn what_runs_until_the_process_is_stopped_is_added() {
        let stopped_late = |stopping_ns: f64, stopped_ns: f64| {
            let window = WindowTimes { stopping_ns, ..window(200_600.0, 300_000.0, 141_600.0, stopped_ns) };
            window.hidden_ns(&usual())
        };
        assert!(stopped_late(300_000.0, 6_000.0).abs() < 1.0, "the machine stops a process now sooner, now later");
        let computed = stopped_late(300_000.0, 156_000.0);
        assert!((computed - 450_000.0).abs() < 1.0, "the device had to leave another context: {computed}");
        let copied = stopped_late(40_000_000.0, 6_000.0);
        assert!((copied - 40_000_000.0).abs() < 1.0, "copies leave no trace: {copied}");
    }

    #[test]
    fn the_quieter_usual_times_count() {
        let (quiet, loud) = (usual(), Usual::of(&[window(200_000.0, 4_000_000.0, 141_000.0, 6_000.0)]));
        assert_eq!((quiet.quieter(loud), loud.quieter(quiet)), (quiet, quiet));
        assert!(loud.longer_ns(&quiet) > 3e6 && quiet.longer_ns(&loud) < -3e6);
    }

    #[test]
    fn usual_times_agree_within_microseconds_whatever_the_baseline_takes() {
        for (window_ns, expected) in [(1e5, 3_000.0), (5e6, 5_000.0), (1e9, 10_000.0)] {
            assert!((agreement_ns(window_ns) - expected).abs() < 1e-6, "{window_ns} ns");
        }
    }

    #[test]
    fn a_window_shorter_than_an_empty_one_still_takes_time() {
        assert!(window(200_000.0, 1_000.0, 141_000.0, 6_000.0).net_ns(&usual()) > 0.0);
    }
}
