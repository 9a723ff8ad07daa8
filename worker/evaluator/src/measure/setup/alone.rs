//! The baseline by itself: before the candidate is loaded, and after it has ended.

use nightshift_protocol::step::StepFailure;
use nightshift_sandbox::cores::OneCore;
use nightshift_sandbox::process::JailPause;

use super::{Setup, Solo};
use crate::cores::TimedCores;
use crate::lock::DeviceMode;
use crate::measure::core_waits::CoreWaits;
use crate::measure::shared_core::ProgramCores;
use crate::measure::windows::{Inputs, Usual, draws_of, per_call, quietest_times, time_window, usual_times};
use crate::measure::{DISTURBED, Side};
use crate::memory::Memory;
use crate::phases::PhaseTimer;
use crate::program::{Program, ProgramOptions};
use crate::runner::control::WindowKind;
use crate::statistics::as_float;

/// Windows of the baseline alone, for each number of calls.
const SOLO_WINDOWS: usize = 12;

impl<M: Memory> Setup<'_, M> {
    /// Times the baseline while the candidate is not loaded.
    pub(in crate::measure) fn solo(&mut self, mode: DeviceMode, timer: &mut PhaseTimer) -> Result<(), Side> {
        let on_device = self.on_device();
        let options = ProgramOptions { calls: self.calls.most, require_sandbox: false, ..self.options };
        let (memory, inputs) = (self.memory, self.shapes.inputs.len());
        {
            let _guard = self.context.lock(DeviceMode::Work)?;
            if self.calls.most > 1 {
                self.baseline.resize(memory, &self.baseline_file, &options).map_err(Side::Baseline)?;
                self.baseline.init(memory, &self.weights).map_err(Side::Baseline)?;
                if let Some(control) = &mut self.control {
                    control.resize(memory, &self.candidate_file, &options).map_err(Side::Baseline)?;
                }
            }
            self.baseline.prepare(memory, 0, &draws_of(1, inputs, &mut self.seeds)[0]).map_err(Side::Baseline)?;
            memory.null_operation()?;
            self.baseline.call(1).map_err(Side::Baseline)?;
        }
        let _guard = self.context.lock(mode)?;
        timer.end("waiting");
        if on_device {
            self.baseline.enter_windows().map_err(Side::Baseline)?;
            if let Some(control) = &mut self.control {
                control.enter_windows().map_err(Side::Baseline)?;
            }
        }
        if !on_device {
            // A program that is stopped cannot slow the baseline down on the host.
            return Ok(());
        }
        let quiet = self.begin_timing(mode);
        let mut waits = CoreWaits::default();
        for (kind, calls) in self.calls.windows() {
            let (call_ns, seeds) = (self.baseline_ns, &mut self.seeds);
            let mut draw = || Inputs::draw(calls, inputs, call_ns, seeds);
            let window_ns = call_ns * as_float(calls);
            let usual = quietest_times(memory, &mut self.baseline, kind, &mut draw, window_ns)?;
            let of_candidate = match &mut self.control {
                None => usual,
                Some(control) => quietest_times(memory, control, kind, &mut draw, window_ns)?,
            };
            let times = if kind == WindowKind::CallInOrder {
                Vec::new()
            } else {
                let cores = &mut self.program_cores;
                times_alone(memory, (&mut self.baseline, cores), &usual, calls, &mut draw, &mut waits)?
            };
            self.solo.push(Solo { windows: (kind, calls), call_ns: times, usual: (of_candidate, usual) });
        }
        self.end_timing(quiet);
        timer.end("baseline alone");
        // Without reserved cores the worker's own compilers run on the same ones.
        match waits.disturbance().filter(|_| self.context.cores().is_some()) {
            Some(reason) => Err(Side::Machine(StepFailure::retriable(DISTURBED, reason))),
            None => Ok(()),
        }
    }

    /// Moves the evaluator's thread and the programs to the cores that are reserved for them. Both programs run on the same core, as
    /// cores differ in what else their caches hold and what else they do. Where the mode asks for quiet, all other processes of this
    /// machine's workers stop until the result is dropped.
    pub(in crate::measure) fn begin_timing(&mut self, mode: DeviceMode) -> QuietHost {
        for program in [&mut self.candidate, &mut self.baseline].into_iter().chain(&mut self.control) {
            program.process.set_timed(true);
            program.process.move_to(self.program_cores.in_order(), true);
        }
        let quiet = (mode == DeviceMode::Isolated).then(|| self.context.host.jail.running.pause_others());
        QuietHost { _core: self.context.cores().and_then(TimedCores::take), _quiet: quiet }
    }

    /// Moves the programs back, for calls that are not timed.
    pub(in crate::measure) fn end_timing(&mut self, quiet: QuietHost) {
        drop(quiet);
        let others = self.context.cores().map(TimedCores::others);
        for program in [&mut self.candidate, &mut self.baseline].into_iter().chain(&mut self.control) {
            program.process.set_timed(false);
            if let Some(cores) = others {
                program.process.move_to(cores, false);
            }
        }
    }

    /// The baseline's times of one call in windows of so many calls, while the candidate was not loaded.
    pub(in crate::measure) fn solo_ns(&self, calls: usize) -> Vec<f64> {
        self.solo
            .iter()
            .find(|solo| solo.windows == (WindowKind::Calls, calls))
            .map(|solo| solo.call_ns.clone())
            .unwrap_or_default()
    }

    /// Ends the candidate, times the baseline by itself once more, and returns its times of one call in windows of so many.
    pub(in crate::measure) fn alone_again(&mut self, mode: DeviceMode, calls: usize) -> Result<Vec<f64>, Side> {
        let guard = self.context.lock(DeviceMode::Driver)?;
        self.candidate.process.end();
        drop(guard);
        let (memory, inputs, call_ns) = (self.memory, self.shapes.inputs.len(), self.baseline_ns);
        let _guard = self.context.lock(mode)?;
        let quiet = self.begin_timing(mode);
        let mut draw = || Inputs::draw(calls, inputs, call_ns, &mut self.seeds);
        let usual = usual_times(memory, &mut self.baseline, WindowKind::Calls, &mut draw, true)?;
        let mut waits = CoreWaits::default();
        let cores = &mut self.program_cores;
        let times = times_alone(memory, (&mut self.baseline, cores), &usual, calls, &mut draw, &mut waits)?;
        self.end_timing(quiet);
        // What was disturbed itself says nothing.
        Ok(if waits.disturbance().is_some() { Vec::new() } else { times })
    }
}

/// The host while programs are timed.
#[derive(Debug, Default)]
pub(in crate::measure) struct QuietHost {
    _core: Option<OneCore>,
    _quiet: Option<JailPause>,
}

/// Times of one call of the baseline in windows of so many calls, on a core by itself where one is found.
fn times_alone<M: Memory>(
    memory: &M,
    (baseline, cores): (&mut Program<M>, &mut ProgramCores),
    usual: &Usual,
    calls: usize,
    draw: &mut dyn FnMut() -> Inputs,
    waits: &mut CoreWaits,
) -> Result<Vec<f64>, Side> {
    let (mut times, mut left_out) = (Vec::new(), 0);
    while times.len() < SOLO_WINDOWS {
        let core = cores.choose();
        if core.is_another {
            baseline.process.move_to(cores.in_order(), true);
        }
        let inputs = draw();
        let window = waits.during(baseline, |baseline| time_window(memory, baseline, WindowKind::Calls, &inputs, true));
        let window = window.map_err(Side::Baseline)?;
        if (core.is_shared || cores.is_shared()) && left_out < SOLO_WINDOWS && cores.has_patience() {
            left_out += 1;
        } else {
            times.push(per_call(window.within_ns(usual), calls));
        }
    }
    Ok(times)
}
