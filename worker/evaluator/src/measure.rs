//! How fast is a program? Candidate and baseline are called in turn on the same fresh inputs, and the outputs of all timed calls are
//! compared.
//!
//! `docs/explanation/measurement.md` is the specification of this module.

mod cores;
mod floor;
mod later;
mod pairs;
mod report;
mod setup;
mod verify;
mod weights;
mod windows;

use std::path::Path;
use std::time::Instant;

use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::Finding;

pub use self::cores::OneCore;
pub use self::floor::{add_floor, floor_ns};
use self::later::later_calls;
use self::pairs::{PairTimes, time_pairs};
use self::report::Report;
use self::setup::Setup;
pub(crate) use self::windows::median_call_ns;
use crate::check::{REFERENCE_FAILED, with_reason};
use crate::lock::DeviceMode;
use crate::memory::{DeviceMemory, Memory, MemoryError};
use crate::phases::PhaseTimer;
use crate::program::ProgramError;
use crate::program::context::{ExecutionContext, Place};
use crate::seeds::SecretSeeds;

/// The code of a measurement that something else on the machine disturbed, and how often it is tried.
const DISTURBED: &str = "gpu.disturbed";
const TRIES: usize = 3;

/// Confidence level of the interval.
const CONFIDENCE: f64 = 0.95;

/// The programs of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// The program in question.
    pub candidate: &'a Path,
    /// What it is compared with.
    pub baseline: &'a Path,
    /// The reference in double precision.
    pub truth: &'a Path,
    /// What the baseline is and how it was built, for people.
    pub baseline_label: &'a str,
}

/// How long and how precisely to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureOptions {
    /// Whether a published number rests on it: then the driver is idle, and the baseline has a new process.
    pub confirms: bool,
    /// Pairs that are timed even when the precision is reached before.
    pub min_pairs: usize,
    /// Most pairs.
    pub max_pairs: usize,
    /// Half the width of the interval by the estimate at which the measurement is precise.
    pub wanted_relative_half_width: f64,
    /// Wall time of the pairs in milliseconds; the smallest number of pairs may overrun it threefold.
    pub max_wall_ms: u64,
}

impl MeasureOptions {
    /// Returns the options of a first measurement, which decides whether a confirmation is worth its time.
    #[must_use]
    pub fn first() -> Self {
        Self { confirms: false, min_pairs: 12, max_pairs: 60, max_wall_ms: 100, ..Self::confirmation() }
    }

    /// Returns the options of a measurement on which a published number rests.
    #[must_use]
    pub fn confirmation() -> Self {
        Self { confirms: true, min_pairs: 30, max_pairs: 300, wanted_relative_half_width: 0.005, max_wall_ms: 400 }
    }

    /// Returns the options of measurements on the host, whose calls vary more.
    #[must_use]
    pub fn on_host(confirms: bool) -> Self {
        Self { confirms, min_pairs: 11, max_pairs: 151, wanted_relative_half_width: 0.02, max_wall_ms: 1_800 }
    }
}

/// Whose process ended, or what else failed.
pub(crate) enum Side {
    Candidate(ProgramError),
    Baseline(ProgramError),
    Machine(StepFailure),
}

impl From<MemoryError> for Side {
    fn from(error: MemoryError) -> Self {
        Self::Baseline(error.into())
    }
}

/// Times a program against a baseline, at the default shape. Gives `Measured`, or `MeasureFailed` when the program does not survive.
/// Blocks: call it from a thread of its own.
pub fn measure(
    context: &ExecutionContext<'_>,
    spec: &TaskSpec,
    programs: &Programs<'_>,
    machine: &MachineFacts,
    require_sandbox: bool,
    options: &MeasureOptions,
) -> Result<StepOutput, StepFailure> {
    let once = || match context.place {
        Place::Host(memory) => measure_with(context, memory, spec, programs, machine, require_sandbox, options),
        Place::Device(device) => {
            let memory = DeviceMemory::new(std::sync::Arc::clone(&device.gpu)).map_err(MemoryError::from)?;
            measure_with(context, &memory, spec, programs, machine, require_sandbox, options)
        }
    };
    let mut output = once();
    for _ in 1..TRIES {
        match &output {
            Err(failure) if failure.code == DISTURBED => output = once(),
            _ => break,
        }
    }
    output
}

fn measure_with<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
    spec: &TaskSpec,
    programs: &Programs<'_>,
    machine: &MachineFacts,
    require_sandbox: bool,
    options: &MeasureOptions,
) -> Result<StepOutput, StepFailure> {
    let shapes =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let seeds = SecretSeeds::from_os()
        .map_err(|error| StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))?;
    let mut timer = PhaseTimer::start();
    // Measuring and measured processes share one core of the host: they never run at the same time, and no wake-up crosses cores.
    let core = context.device().is_none().then(OneCore::take).flatten();
    let core = core.as_ref().map(OneCore::number);
    let mode = if options.confirms { DeviceMode::Quiet } else { DeviceMode::Exclusive };
    let mut setup = match Setup::open(
        context,
        memory,
        spec,
        &shapes,
        programs,
        seeds,
        (core, require_sandbox),
        options,
        &mut timer,
    ) {
        Ok(setup) => setup,
        Err(side) => return failed(memory, side, Vec::new()),
    };
    let mut findings: Vec<Finding> = std::mem::take(&mut setup.findings);
    let timed =
        setup.solo(mode, &mut timer).and_then(|()| setup.load_candidate(&mut findings, &mut timer)).and_then(|()| {
            let times = time_alone(&mut setup, mode, options, &mut findings, &mut timer)?;
            // An accusation that rests on time alone is repeated, while the driver is idle, before it is made; and so is a
            // correction of times that other processes may have caused.
            let may_be_disturbed = mode != DeviceMode::Quiet && context.device().is_some();
            if !(times.accuses() || may_be_disturbed && !times.corrections().is_empty()) {
                return Ok(times);
            }
            let mut again = time_alone(&mut setup, DeviceMode::Quiet, options, &mut findings, &mut timer)?;
            again.replaces(&times, "calls seemed to take more time than they showed, and were timed again");
            Ok(again)
        });
    let times = match timed {
        Ok(times) => times,
        Err(side) => {
            let said = setup.baseline.printed();
            setup.finish();
            return failed(memory, side, findings).map_err(|failure| with_reason(failure, &said));
        }
    };
    for finding in times.corrections() {
        crate::breach::note(&mut findings, finding);
    }
    let report = Report {
        spec,
        machine,
        baseline_label: programs.baseline_label,
        sandbox: setup.candidate_sandbox(),
        times: &times,
        options,
        on_device: context.device().is_some(),
    };
    let mut measurement = report.measurement();
    timer.end("statistics");
    setup.finish();
    timer.end("ends");
    measurement.cost = timer.phases();
    Ok(StepOutput::Measured { measurement: Box::new(measurement), findings })
}

/// The part during which nothing else may use the device, and calls after it.
fn time_alone<M: Memory>(
    setup: &mut Setup<'_, M>,
    mode: DeviceMode,
    options: &MeasureOptions,
    findings: &mut Vec<Finding>,
    timer: &mut PhaseTimer,
) -> Result<PairTimes, Side> {
    let guard = setup.context.lock(mode);
    timer.end("waiting");
    let started = Instant::now();
    let (mut times, mut verifier) = time_pairs(setup, options, findings, timer)?;
    times.alone = started.elapsed();
    drop(guard);
    if options.confirms {
        later_calls(setup, times.calls, &mut verifier, findings)?;
        times.take_later(&verifier);
        timer.end("later calls");
    }
    Ok(times)
}

fn failed<M: Memory>(memory: &M, side: Side, findings: Vec<Finding>) -> Result<StepOutput, StepFailure> {
    match side {
        Side::Machine(failure) => Err(failure),
        Side::Candidate(error) => {
            let end = error.into_end()?;
            // A GPU that is lost ends every program: that is no verdict on this one.
            memory.null_operation()?;
            Ok(StepOutput::MeasureFailed { end, findings })
        }
        Side::Baseline(error) => {
            let end = error.into_end()?;
            memory.null_operation()?;
            Err(StepFailure::retriable(REFERENCE_FAILED, format!("the baseline broke down: {}", end.describe())))
        }
    }
}
