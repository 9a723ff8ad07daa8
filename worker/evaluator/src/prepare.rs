//! Can a task be used? Its reference is run, compared with the truth and timed, before a model is asked to beat it.

use std::path::PathBuf;

use nightshift_protocol::last_words::last_words;
use nightshift_protocol::measurement::CostPart;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, TaskSpec, Tolerance};
use nightshift_protocol::verdict::{Finding, ProcessEnd};
use nightshift_sandbox::cores::OneCore;

use crate::breach::warning;
use crate::check::{LaunchedOracle, Oracle, OracleError, ReferenceError, smallest_first};
use crate::compare::UNNOTICED;
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::measure::median_call_ns;
use crate::memory::{DeviceMemory, Memory, MemoryError, Operand};
use crate::phases::PhaseTimer;
use crate::program::ProgramOptions;
use crate::program::context::{ExecutionContext, Place};
use crate::seeds::SecretSeeds;

/// Timed calls of the reference.
const TIMED_CALLS: usize = 7;

/// Most that results of equal calls may be apart on a device, in tolerances.
const MAX_APART: f64 = 0.5;

/// Maximum number of tensors of a kind that are changed one at a time.
const MAX_CHANGED_TENSORS: usize = 16;

/// The two built forms of a reference.
#[derive(Debug, Clone)]
pub struct ReferenceLibraries {
    /// As it is timed.
    pub reference: PathBuf,
    /// In double precision.
    pub truth: PathBuf,
}

/// Facts about a usable reference.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceFacts {
    /// Median time of one call at the default shape, in nanoseconds.
    pub baseline_median_ns: f64,
    /// Largest normalized error against the truth, over all shapes.
    pub reference_normalized_error: f64,
    /// Observations about the task's quality.
    pub warnings: Vec<Finding>,
    /// Time of the examination by phase.
    pub cost: Vec<CostPart>,
}

/// The result of an examination.
#[derive(Debug, Clone, PartialEq)]
pub enum Examined {
    /// It can.
    Usable(ReferenceFacts),
    /// It cannot.
    Rejected {
        /// Stable code, for example `task.reference_not_deterministic`.
        code: String,
        /// The problem and its remedy.
        message: String,
        /// Output of the reference.
        printed: String,
    },
}

/// Examines a built reference at every shape. Blocks: call it from a thread of its own.
pub fn prepare(
    context: &ExecutionContext<'_>,
    spec: &TaskSpec,
    libraries: &ReferenceLibraries,
    seeds: &mut SecretSeeds,
) -> Result<Examined, StepFailure> {
    match context.place {
        Place::Host(memory) => prepare_with(context, memory, spec, libraries, seeds),
        Place::Device(device) => {
            let memory = DeviceMemory::new(std::sync::Arc::clone(&device.gpu)).map_err(MemoryError::from)?;
            prepare_with(context, &memory, spec, libraries, seeds)
        }
    }
}

fn prepare_with<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
    spec: &TaskSpec,
    libraries: &ReferenceLibraries,
    seeds: &mut SecretSeeds,
) -> Result<Examined, StepFailure> {
    let default =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let shapes = smallest_first(spec)?;
    let mut timer = PhaseTimer::start();
    let mut facts = ReferenceFacts {
        baseline_median_ns: 0.0,
        reference_normalized_error: 0.0,
        warnings: known_problems(spec),
        cost: Vec::new(),
    };
    let on_device = context.device().is_some();
    let core = if on_device { None } else { OneCore::take_from_the_end(0) };
    let core = core.as_ref().map(OneCore::number);
    // On the host a process is cheap, and each shape gets a new one.
    let groups: Vec<&[ConcreteShapes]> = if on_device { vec![&shapes] } else { shapes.chunks(1).collect() };
    for together in groups {
        let options =
            ProgramOptions { spec, shapes: together, calls: 1, core, require_sandbox: false, may_be_resident: true };
        let mut oracle = match start(context, memory, libraries, &options) {
            Ok(oracle) => oracle,
            Err(error) => return broke_down(error, ""),
        };
        timer.end("starting reference and truth");
        if let Some(pool) = context.pool() {
            pool.expect_programs();
        }
        let guard = context.lock(DeviceMode::Work)?;
        let mut outcome = Ok(());
        for (number, shapes) in together.iter().enumerate() {
            let is_default = shapes.name == default.name;
            let (oracle, facts) = (&mut oracle, &mut facts);
            let mut examination =
                Examination { memory, shapes, tolerance: &spec.effective_tolerance(), oracle, seeds, facts, on_device };
            outcome = examination.run(number, is_default);
            if outcome.is_err() {
                break;
            }
        }
        drop(guard);
        if outcome.is_ok()
            && let Some(number) = together.iter().position(|shapes| shapes.name == default.name)
        {
            // Other steps may be at work on the device: nothing else computes while times are taken.
            let guard = context.lock(DeviceMode::Exclusive)?;
            outcome = time_reference(memory, &mut oracle, (number, &default), seeds, on_device).map(|median_ns| {
                facts.baseline_median_ns = median_ns;
            });
            drop(guard);
        }
        match outcome {
            Ok(()) => oracle.finish(context),
            Err(Stop::Rejected { code, message }) => {
                return Ok(Examined::Rejected { code: code.to_owned(), message, printed: oracle.printed() });
            }
            Err(Stop::Oracle(error)) => return broke_down(error, &oracle.printed()),
        }
        timer.end("calls and comparisons");
    }
    facts.cost = timer.phases();
    Ok(Examined::Usable(facts))
}

fn start<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
    libraries: &ReferenceLibraries,
    options: &ProgramOptions<'_>,
) -> Result<Oracle<M>, OracleError> {
    let mut launched = LaunchedOracle::start(context, &libraries.reference, &libraries.truth, options, true)?;
    for process in launched.processes() {
        process.load_runtime()?;
    }
    let guard = context.lock(DeviceMode::Driver)?;
    for process in launched.processes() {
        process.make_ready()?;
    }
    let oracle = launched.open(context, memory, options)?;
    drop(guard);
    Ok(oracle)
}

/// Median time of one call of the reference, in nanoseconds.
fn time_reference<M: Memory>(
    memory: &M,
    oracle: &mut Oracle<M>,
    (number, shapes): (usize, &ConcreteShapes),
    seeds: &mut SecretSeeds,
    on_device: bool,
) -> Result<f64, Stop> {
    oracle.select(number)?;
    let weights = Draw::all(shapes.params.len(), seeds.draw(), InputKind::Declared);
    oracle.reference.init(memory, &weights)?;
    let inputs = shapes.inputs.len();
    Ok(median_call_ns(memory, &mut oracle.reference, inputs, seeds, (on_device, TIMED_CALLS))?)
}

/// Returns the problems of a task that are known without running it.
fn known_problems(spec: &TaskSpec) -> Vec<Finding> {
    let problems = spec.torch.iter().flat_map(|torch| &torch.problems);
    problems.map(|problem| warning(&problem.code, problem.message.clone())).collect()
}

/// The reason for which an examination ends early.
enum Stop {
    Rejected { code: &'static str, message: String },
    Oracle(OracleError),
}

impl<E: Into<OracleError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Oracle(error.into())
    }
}

/// Everything that the reference printed is kept next to the line of it that says why.
fn broke_down(error: OracleError, printed: &str) -> Result<Examined, StepFailure> {
    let end = match error {
        OracleError::Ended(end) => end,
        OracleError::Failure(failure) => return Err(failure),
    };
    let code = match end {
        ProcessEnd::TimedOut { .. } => "task.reference_hangs",
        ProcessEnd::MemoryExceeded { .. } => "task.reference_exceeds_memory",
        ProcessEnd::LoadFailed { .. } => "task.reference_does_not_load",
        ProcessEnd::CallFailed { .. } => "task.reference_returns_error",
        _ => "task.reference_crashes",
    };
    let end = end.describe();
    let said = last_words(printed).filter(|said| !end.contains(said));
    let said = said.map_or_else(String::new, |said| format!(": {said} (all that it printed is kept with this step)"));
    let message = format!("the reference cannot be run: {end}{said}");
    Ok(Examined::Rejected { code: code.to_owned(), message, printed: printed.to_owned() })
}

/// One reference at one shape.
struct Examination<'a, M: Memory> {
    memory: &'a M,
    shapes: &'a ConcreteShapes,
    tolerance: &'a Tolerance,
    oracle: &'a mut Oracle<M>,
    seeds: &'a mut SecretSeeds,
    facts: &'a mut ReferenceFacts,
    on_device: bool,
}

impl<M: Memory> Examination<'_, M> {
    fn run(&mut self, number: usize, is_default: bool) -> Result<(), Stop> {
        self.oracle.select(number)?;
        let mut draw = |count: usize| Draw::all(count, self.seeds.draw(), InputKind::Declared);
        let (weights, inputs) = (draw(self.shapes.params.len()), draw(self.shapes.inputs.len()));
        self.oracle.init(self.memory, &weights)?;
        let (error, breaches) = self.ask(&inputs, true)?;
        if let Some(message) = breaches.first() {
            return Err(self.rejected("task.reference_breaks_contract", message));
        }
        let first =
            (self.oracle.reference.keep_outputs(self.memory, 0)?, self.oracle.truth.keep_outputs(self.memory, 0)?);
        self.ask(&inputs, false)?;
        self.look_for_differences(&first)?;
        self.facts.reference_normalized_error = self.facts.reference_normalized_error.max(error.normalized);
        // A reference that misses the tolerance widens it; one that misses it by far leaves nothing to compare with.
        if error.is_meaningless(self.tolerance) {
            let message = format!(
                "the reference is {:.0} times the tolerance away from the truth in double precision, and nothing can be compared with \
                 it: allow more, or make the reference more precise",
                error.normalized
            );
            return Err(self.rejected("task.reference_meaningless", &message));
        }
        if is_default {
            self.look_for_constants(&first.1)?;
            self.change_tensors(&weights, &inputs, &first.1)?;
        }
        Ok(())
    }

    /// Calls both. Returns the reference's error and the rules that they broke.
    fn ask(&mut self, inputs: &[Draw], look_for_breaches: bool) -> Result<(ReferenceError, Vec<String>), Stop> {
        let answer = self.oracle.ask(self.memory, self.shapes, inputs, self.tolerance, look_for_breaches)?;
        let answer = answer.ok_or_else(|| {
            self.rejected(
                "task.reference_not_finite",
                "the reference gives values that are not finite for its declared inputs: change their distribution",
            )
        })?;
        let breaches = answer.breaches.iter().map(|breach| breach.finding().message).collect();
        Ok((answer.own_error, breaches))
    }

    fn rejected(&self, code: &'static str, message: &str) -> Stop {
        Stop::Rejected { code, message: format!("{message} (shape `{}`)", self.shapes.name) }
    }

    /// Equal calls give equal results, or on a device results that no tolerance tells apart.
    fn look_for_differences(&mut self, (reference, truth): &(Vec<M::Copied>, Vec<M::Copied>)) -> Result<(), Stop> {
        let memory = self.memory;
        let (mut differ, mut largest) = (false, 0.0_f64);
        let pairs = [(self.oracle.reference.outputs(0), reference), (self.oracle.truth.outputs(0), truth)];
        for (again, first) in pairs {
            for (again, first) in again.into_iter().zip(first) {
                let first = Operand::Copied(first);
                if memory.fingerprint(again)? != memory.fingerprint(first)? {
                    differ = true;
                    largest = largest.max(memory.compare(again, first, self.tolerance)?.largest_error);
                }
            }
        }
        if !differ {
            return Ok(());
        }
        if !self.on_device || largest > MAX_APART {
            return Err(self.rejected(
                "task.reference_not_deterministic",
                "two calls of the reference with equal inputs gave different results: remove what is random, or what is kept from \
                 one call for the next",
            ));
        }
        let message = format!(
            "two calls of the reference with equal inputs differ in their last bits: by {largest:.3} of the tolerance at most"
        );
        let code = "reference_not_bitwise_deterministic";
        if !self.facts.warnings.iter().any(|warning| warning.code == code) {
            self.facts.warnings.push(warning(code, message));
        }
        Ok(())
    }

    /// A constant output can be had without the work.
    fn look_for_constants(&mut self, truth: &[M::Copied]) -> Result<(), Stop> {
        for (tensor, output) in self.shapes.outputs.iter().zip(truth) {
            if tensor.elements() > 1 && self.memory.is_constant(Operand::Copied(output))? {
                let message = format!("every element of the output `{}` has the same value", tensor.name);
                self.facts.warnings.push(warning("constant_output", message));
            }
        }
        Ok(())
    }

    /// Returns whether the truth changed by what a program's results have to show.
    fn is_noticed(&self, first: &[M::Copied]) -> Result<bool, Stop> {
        let places = self.oracle.reference.layout().call(0).outputs.clone();
        for ((now, first), place) in self.oracle.truth.outputs(0).into_iter().zip(first).zip(&places) {
            if self.memory.differ((now, Operand::Copied(first)), place, self.tolerance, UNNOTICED)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Changes single tensors, and looks whether the result depends on them.
    fn change_tensors(&mut self, weights: &[Draw], inputs: &[Draw], first: &[M::Copied]) -> Result<(), Stop> {
        for (number, tensor) in self.shapes.inputs.iter().enumerate().take(MAX_CHANGED_TENSORS) {
            let mut changed = inputs.to_vec();
            changed[number] = Draw::declared(self.seeds.draw());
            self.ask(&changed, false)?;
            if !self.is_noticed(first)? {
                let message = format!("the result does not depend on the input `{}`", tensor.name);
                self.facts.warnings.push(warning("input_has_no_effect", message));
            }
        }
        for (number, tensor) in self.shapes.params.iter().enumerate().take(MAX_CHANGED_TENSORS) {
            let mut changed = weights.to_vec();
            changed[number] = Draw::declared(self.seeds.draw());
            self.oracle.init(self.memory, &changed)?;
            self.ask(inputs, false)?;
            if !self.is_noticed(first)? {
                let message = format!("the result does not depend on the weights `{}`", tensor.name);
                self.facts.warnings.push(warning("parameter_has_no_effect", message));
            }
        }
        Ok(())
    }
}
