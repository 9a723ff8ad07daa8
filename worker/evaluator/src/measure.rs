//! How fast is a program? Candidate and baseline are called in turn on the same fresh inputs, and the outputs of all timed calls are
//! compared.
//!
//! `docs/explanation/measurement.md` is the specification of this module.

mod core_waits;
mod floor;
mod later;
mod pair_times;
mod pairs;
mod process_pairs;
mod report;
mod setup;
mod shared_core;
mod verify;
mod weights;
mod windows;

use std::path::Path;
use std::time::Instant;

use nightshift_protocol::machine::{MachineFacts, SandboxReport};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{ConcreteShapes, TaskSpec};
use nightshift_protocol::verdict::Finding;
use nightshift_sandbox::cores::OneCore;
use nightshift_sandbox::process::ProcessError;

pub use self::floor::add_floor;
use self::later::later_calls;
use self::pair_times::PairTimes;
pub use self::pair_times::WORK_OUTSIDE_CALL;
use self::pairs::time_pairs;
use self::process_pairs::ProcessPairs;
use self::report::Report;
use self::setup::{Basis, Setup};
pub(crate) use self::windows::median_call_ns;
use crate::check::{REFERENCE_FAILED, with_reason};
use crate::cores::TimedCores;
use crate::lock::DeviceMode;
use crate::memory::{DeviceMemory, Memory, MemoryError};
use crate::phases::PhaseTimer;
use crate::program::ProgramError;
use crate::program::context::{ExecutionContext, Place};

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
    /// The baseline.
    pub baseline: &'a Path,
    /// The reference in double precision.
    pub truth: &'a Path,
    /// Description of the baseline and its build, for people.
    pub baseline_label: &'a str,
}

/// Duration and precision of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureOptions {
    /// Whether the result is published: then the driver is idle, and the baseline has new processes.
    pub confirms: bool,
    /// Whether the machine's other work stops while it is timed.
    pub quiet: bool,
    /// Whether the candidate is trusted and compiles at its first call. This takes minutes, mostly on the host: the call runs in turns
    /// with other users of the device.
    pub compiles: bool,
    /// Pairs of processes, each of which has a process of the candidate and one of the baseline.
    pub process_pairs: usize,
    /// The upper limit of pairs, where the interval stays too wide.
    pub most_process_pairs: usize,
    /// Windows of each program that a pair of processes is timed for, even when the precision is reached before.
    pub min_windows: usize,
    /// Maximum number of windows of each program in a pair of processes.
    pub max_windows: usize,
    /// Half the width of the interval by the estimate at which the measurement is precise.
    pub wanted_relative_half_width: f64,
    /// Wall time of the windows of a pair of processes in milliseconds; the smallest number of them may overrun it threefold.
    pub max_wall_ms: u64,
}

impl MeasureOptions {
    /// Returns the options of a first measurement, which decides whether a confirmation is worth its time.
    #[must_use]
    pub fn first() -> Self {
        Self {
            confirms: false,
            quiet: false,
            compiles: false,
            process_pairs: 1,
            most_process_pairs: 1,
            min_windows: 12,
            max_windows: 60,
            wanted_relative_half_width: 0.01,
            max_wall_ms: 100,
        }
    }

    /// Returns the options of a measurement on which a published number rests.
    #[must_use]
    pub fn confirmation() -> Self {
        Self {
            confirms: true,
            quiet: true,
            compiles: false,
            process_pairs: 3,
            most_process_pairs: 5,
            min_windows: 12,
            max_windows: 100,
            wanted_relative_half_width: 0.02,
            max_wall_ms: 300,
        }
    }

    /// Returns the options of measurements on the host, where times differ more from process to process.
    #[must_use]
    pub fn on_host(confirms: bool) -> Self {
        if confirms {
            Self {
                confirms,
                quiet: confirms,
                compiles: false,
                process_pairs: 5,
                most_process_pairs: 5,
                min_windows: 6,
                max_windows: 30,
                wanted_relative_half_width: 0.05,
                max_wall_ms: 400,
            }
        } else {
            Self {
                confirms,
                quiet: confirms,
                compiles: false,
                process_pairs: 1,
                most_process_pairs: 1,
                min_windows: 11,
                max_windows: 151,
                wanted_relative_half_width: 0.02,
                max_wall_ms: 1_000,
            }
        }
    }
}

/// The error of a measurement: the end of a process, or a failure.
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

impl From<ProcessError> for Side {
    fn from(error: ProcessError) -> Self {
        Self::Machine(error.into())
    }
}

/// Times a program against a baseline, at the default shape. Returns `Measured`, or `MeasureFailed` when the program does not survive.
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
    let mut timer = PhaseTimer::start();
    let mut round =
        Round { context, memory, spec, shapes: &shapes, programs, pair: 0, core: None, require_sandbox, options };
    let (mut findings, mut all) = (Vec::new(), ProcessPairs::default());
    let (mut basis, mut sandbox) = (None, None);
    while all.needs_another(options) {
        // Measuring and measured processes share one core of the host: they never run at the same time, and no wake-up crosses cores.
        // Each pair of processes has another core, as cores differ in what else uses their caches.
        round.pair = all.timed();
        let core = context.device().is_none().then(|| OneCore::take_from_the_end(round.pair)).flatten();
        round.core = core.as_ref().map(OneCore::number);
        let place = PlaceOfPair { is_first: all.pairs().is_empty(), may_be_set_aside: all.may_set_aside(options) };
        let timed = round.time_one_pair(basis.take(), place, &mut findings, &mut timer);
        let timed = match timed {
            Ok(timed) => timed,
            Err(failed) => return reported(memory, failed, findings),
        };
        basis = Some(timed.basis);
        sandbox = Some(timed.sandbox);
        all.add(timed.times, options);
    }
    for finding in all.corrections(options) {
        crate::breach::note(&mut findings, finding);
    }
    let sandbox = sandbox.unwrap_or_default();
    let report = Report {
        spec,
        machine,
        baseline_label: programs.baseline_label,
        sandbox: &sandbox,
        all: &all,
        options,
        on_device: context.device().is_some(),
        reserved_cores: context.cores().map_or(0, TimedCores::count),
    };
    let mut measurement = report.measurement();
    timer.end("statistics");
    measurement.cost = timer.phases();
    Ok(StepOutput::Measured { measurement: Box::new(measurement), findings })
}

/// The task, programs and options that all pairs of processes of a measurement share.
#[derive(Clone, Copy)]
struct Round<'a, M: Memory> {
    context: &'a ExecutionContext<'a>,
    memory: &'a M,
    spec: &'a TaskSpec,
    shapes: &'a ConcreteShapes,
    programs: &'a Programs<'a>,
    /// The number of the pair of processes.
    pair: usize,
    core: Option<usize>,
    require_sandbox: bool,
    options: &'a MeasureOptions,
}

/// The progress of a pair of processes in its measurement.
#[derive(Debug, Clone, Copy)]
struct PlaceOfPair {
    is_first: bool,
    may_be_set_aside: bool,
}

/// The result of one pair of processes.
struct TimedPair {
    times: PairTimes,
    basis: Basis,
    sandbox: SandboxReport,
}

/// Which side failed, and what the candidate printed, or the baseline where it or the machine failed.
struct Failed {
    side: Side,
    printed: String,
}

impl From<Side> for Failed {
    fn from(side: Side) -> Self {
        Self { side, printed: String::new() }
    }
}

impl<M: Memory> Round<'_, M> {
    /// Starts a process of each program, times windows of both, and ends the processes. Later calls are made with the first pair.
    fn time_one_pair(
        &self,
        basis: Option<Basis>,
        PlaceOfPair { is_first, may_be_set_aside }: PlaceOfPair,
        findings: &mut Vec<Finding>,
        timer: &mut PhaseTimer,
    ) -> Result<TimedPair, Failed> {
        let (context, options) = (self.context, self.options);
        let mode = if options.quiet { DeviceMode::Isolated } else { DeviceMode::Exclusive };
        let mut setup = Setup::open(self, basis, timer)?;
        let timed = setup.solo(mode, timer).and_then(|()| setup.load_candidate(findings, timer)).and_then(|()| {
            let times = time_alone(&mut setup, mode, options, is_first, findings, timer)?;
            // Where other processes may have begun or ended meanwhile, a correction of times is looked for again.
            if mode == DeviceMode::Isolated || context.device().is_none() || times.corrections().is_empty() {
                return Ok(times);
            }
            let mut again = time_alone(&mut setup, DeviceMode::Isolated, options, is_first, findings, timer)?;
            again.replaces(
                &times,
                "calls seemed to take more time than they showed while other processes began or ended",
            );
            Ok(again)
        });
        let timed = timed.and_then(|mut times| {
            if times.disturbed().is_some() && !may_be_set_aside {
                times.take_alone_after(setup.alone_again(mode, times.calls)?);
                timer.end("baseline alone");
            }
            Ok(times)
        });
        match timed {
            Ok(times) => {
                let (basis, sandbox) = (setup.basis(times.calls), setup.candidate_sandbox().clone());
                setup.finish();
                timer.end("ends");
                Ok(TimedPair { times, basis, sandbox })
            }
            Err(side) => {
                let program = if matches!(side, Side::Candidate(_)) { &setup.candidate } else { &setup.baseline };
                let printed = program.printed();
                setup.finish();
                Err(Failed { side, printed })
            }
        }
    }
}

/// The part during which nothing else may use the device, and calls after it.
fn time_alone<M: Memory>(
    setup: &mut Setup<'_, M>,
    mode: DeviceMode,
    options: &MeasureOptions,
    is_first: bool,
    findings: &mut Vec<Finding>,
    timer: &mut PhaseTimer,
) -> Result<PairTimes, Side> {
    let guard = setup.context.lock(mode)?;
    timer.end("waiting");
    let started = Instant::now();
    let quiet = setup.begin_timing(mode);
    let timed = time_pairs(setup, options, findings, timer);
    setup.end_timing(quiet);
    drop(guard);
    let (mut times, mut verifier) = timed?;
    times.alone = started.elapsed();
    if options.confirms && is_first {
        later_calls(setup, times.calls, &mut verifier, findings)?;
        times.take_later(&verifier);
        timer.end("later calls");
    }
    Ok(times)
}

fn reported<M: Memory>(
    memory: &M,
    Failed { side, printed }: Failed,
    findings: Vec<Finding>,
) -> Result<StepOutput, StepFailure> {
    match side {
        Side::Machine(failure) => Err(with_reason(failure, &printed)),
        Side::Candidate(error) => {
            let end = error.into_end()?;
            // A GPU that is lost ends every program: that is no verdict on this one.
            memory.null_operation()?;
            Ok(StepOutput::MeasureFailed { end, findings, printed })
        }
        Side::Baseline(error) => {
            let end = error.into_end()?;
            memory.null_operation()?;
            let message = format!("the baseline broke down: {}", end.describe());
            Err(with_reason(StepFailure::retriable(REFERENCE_FAILED, message), &printed))
        }
    }
}
