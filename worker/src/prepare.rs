//! Can a task be used? Its reference is run, compared with the truth and timed, before anybody is asked to beat it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nightshift_protocol::last_words::last_words;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::CostPart;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, TaskSpec, Tolerance};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};
use nightshift_toolchain::Host;

use crate::check::{Expected, LaunchedOracle, Oracle, OracleError, same_bits, smallest_first};
use crate::compare::differ_noticeably;
use crate::cost::Cost;
use crate::inputs::{InputKind, SecretSeeds, TensorData, generate, generate_all};
use crate::measure::{CacheSweep, OneCore, stage_sets};
use crate::runner::{CallTime, Draw, Grounds, Session, SessionError, SessionOptions};
use crate::statistics::median;
use nightshift_sandbox::Queues;
use nightshift_sandbox::process::CancelFlag;

/// Timed calls of the baseline.
const MAX_TIMED_CALLS: usize = 21;

/// Timed calls that are made whatever they take.
const MIN_TIMED_CALLS: usize = 3;

/// Wall time after which no further call is timed.
const TIMING_LIMIT: Duration = Duration::from_millis(700);

/// Most that results of equal calls may be apart on a device, in tolerances.
const MAX_APART: f64 = 0.5;

/// Most tensors that are changed one at a time.
const MAX_PERTURBED_TENSORS: usize = 16;

/// The reference may take this many times what a candidate may take, as in a check.
const PATIENCE: u64 = 4;

/// The two built forms of a reference.
#[derive(Debug, Clone)]
pub struct ReferenceLibraries {
    /// As it is timed.
    pub reference: PathBuf,
    /// In double precision.
    pub truth: PathBuf,
}

/// What is known about a usable reference.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceFacts {
    /// Median time of one call at the default shape, in nanoseconds.
    pub baseline_median_ns: f64,
    /// Largest normalized error against the truth, over all shapes.
    pub reference_normalized_error: f64,
    /// Observations about the task's quality.
    pub warnings: Vec<Finding>,
    /// Where the time of the examination went.
    pub cost: Vec<CostPart>,
}

/// Whether the task can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Examined {
    /// It can.
    Usable(ReferenceFacts),
    /// It cannot.
    Rejected {
        /// Stable code, for example `task.reference_not_deterministic`.
        code: String,
        /// What is wrong and what to do.
        message: String,
        /// What the reference printed.
        printed: String,
    },
}

/// Examines a built reference at every shape. Blocks, and keeps to one core while it measures: call it from a dedicated
/// thread.
pub fn prepare(
    host: &Host,
    spec: &TaskSpec,
    libraries: &ReferenceLibraries,
    machine: &MachineFacts,
    seeds: &mut SecretSeeds,
    cancel: &CancelFlag,
) -> Result<Examined, StepFailure> {
    prepare_on(&Grounds { host, device: None, cancel, gate: None, standby: None }, spec, libraries, machine, seeds)
}

/// [`prepare`], on the host or on a device.
pub fn prepare_on(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    libraries: &ReferenceLibraries,
    machine: &MachineFacts,
    seeds: &mut SecretSeeds,
) -> Result<Examined, StepFailure> {
    let all_shapes =
        spec.all_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let mut cost = Cost::start();
    let mut facts = ReferenceFacts {
        baseline_median_ns: 0.0,
        reference_normalized_error: 0.0,
        warnings: known(spec),
        cost: Vec::new(),
    };
    // As a check takes them, so that what was started here can serve there.
    let shapes = smallest_first(spec)?;
    let default = all_shapes.first().map(|shapes| shapes.name.as_str());
    for together in grounds.together(&shapes) {
        let launched = Oracle::launch(grounds, spec, together, &libraries.reference, &libraries.truth);
        let mut oracle = match launched.and_then(LaunchedOracle::wait) {
            Ok(oracle) => oracle,
            Err(error) => return broke_down(error, ""),
        };
        cost.part("starting reference and truth");
        // Two for what is found out about the reference besides, and two for the next task's.
        if oracle.reference().is_some_and(|session| session.runs_python()) {
            grounds.expect_programs(4);
        }
        let outcome = together.iter().enumerate().try_for_each(|(number, shapes)| {
            oracle.select(number, shapes)?;
            let (oracle, facts) = (&mut oracle, &mut facts);
            Examination { shapes, tolerance: &spec.tolerance, oracle, seeds, facts }
                .run(Some(shapes.name.as_str()) == default)
        });
        match outcome {
            Ok(()) => {}
            Err(Stop::Rejected { code, message }) => {
                return Ok(Examined::Rejected { code: code.to_owned(), message, printed: oracle.printed() });
            }
            Err(Stop::Oracle(error)) => return broke_down(error, &oracle.printed()),
        }
        cost.part("calls and comparisons");
        let timed = together.iter().position(|shapes| Some(shapes.name.as_str()) == default);
        if let (Some(number), Some(_)) = (timed, grounds.device) {
            match time_on_device(&mut oracle, (number, &together[number]), seeds) {
                Ok(median_ns) => facts.baseline_median_ns = median_ns,
                Err(error) => return broke_down(error, &oracle.printed()),
            }
            cost.part("timing the reference");
        }
        grounds.leave(oracle.into_sessions());
    }
    if let (Some(shapes), None) = (all_shapes.first(), grounds.device) {
        match time_baseline(grounds, spec, shapes, libraries, machine, seeds) {
            Ok(median_ns) => facts.baseline_median_ns = median_ns,
            Err(error) => return broke_down(error, ""),
        }
        cost.part("timing the reference");
    }
    facts.cost = cost.parts();
    Ok(Examined::Usable(facts))
}

/// What is known to be wrong with a task.
fn known(spec: &TaskSpec) -> Vec<Finding> {
    let problems = spec.torch.iter().flat_map(|torch| &torch.problems);
    problems.map(|problem| warning(&problem.code, problem.message.clone())).collect()
}

/// Why an examination ends early.
enum Stop {
    Rejected { code: &'static str, message: String },
    Oracle(OracleError),
}

impl From<OracleError> for Stop {
    fn from(error: OracleError) -> Self {
        Self::Oracle(error)
    }
}

/// All that it printed is kept beside the line of it that says why.
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
struct Examination<'a> {
    shapes: &'a ConcreteShapes,
    tolerance: &'a Tolerance,
    oracle: &'a mut Oracle,
    seeds: &'a mut SecretSeeds,
    facts: &'a mut ReferenceFacts,
}

impl Examination<'_> {
    fn run(&mut self, thorough: bool) -> Result<(), Stop> {
        let params = generate_all(&self.shapes.params, self.seeds.draw(), InputKind::Declared);
        let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        self.oracle.init(&params, &|_| None)?;
        let first = self.answer(&inputs)?;
        let again = self.answer(&inputs)?;
        self.look_for_differences(&first, &again)?;
        if let Some(breach) = first.breaches.first() {
            return Err(self.rejected("task.reference_breaks_contract", &breach.finding().message));
        }
        self.facts.reference_normalized_error = self.facts.reference_normalized_error.max(first.reference_error);
        if first.reference_error > 1.0 {
            return Err(self.rejected(
                "task.tolerance_too_tight",
                &format!(
                    "the reference itself is {:.3} times the tolerance away from the truth in double precision: allow \
                     more, or make the reference more precise",
                    first.reference_error
                ),
            ));
        }
        if thorough {
            self.look_for_constants(&first);
            self.perturb(&params, &inputs, &first)?;
        }
        Ok(())
    }

    fn answer(&mut self, inputs: &[TensorData]) -> Result<Expected, Stop> {
        let answer = self.oracle.answer(inputs)?;
        answer.ok_or_else(|| {
            self.rejected(
                "task.reference_not_finite",
                "the reference gives values that are not finite for its declared inputs: change their distribution",
            )
        })
    }

    fn rejected(&self, code: &'static str, message: &str) -> Stop {
        Stop::Rejected { code, message: format!("{message} (shape `{}`)", self.shapes.name) }
    }

    /// Equal calls give equal results, or on a device results that no tolerance tells apart.
    fn look_for_differences(&mut self, first: &Expected, again: &Expected) -> Result<(), Stop> {
        let pairs = [(&first.reference, &again.reference), (&first.truth, &again.truth)];
        let differ: Vec<_> = pairs.into_iter().filter(|(first, again)| !same_bits(first, again)).collect();
        if differ.is_empty() {
            return Ok(());
        }
        let apart = |(first, again): &(&Vec<TensorData>, &Vec<TensorData>)| self.oracle.apart(first, again);
        let largest = differ.iter().map(apart).try_fold(0.0, |most: f64, apart| Some(most.max(apart?)));
        let Some(largest) = largest.filter(|largest| *largest <= MAX_APART) else {
            return Err(self.rejected(
                "task.reference_not_deterministic",
                "two calls of the reference with equal inputs gave different results: remove what is random, or what \
                 is kept from one call for the next",
            ));
        };
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
    fn look_for_constants(&mut self, expected: &Expected) {
        for (shape, output) in self.shapes.outputs.iter().zip(&expected.truth) {
            let values = output.as_f64();
            if values.len() > 1 && values.windows(2).all(|pair| is_same_number(pair[0], pair[1])) {
                let message = format!("every element of the output `{}` has the same value", shape.name);
                self.facts.warnings.push(warning("constant_output", message));
            }
        }
    }

    /// Whether the truth changed by what a program's results have to show.
    fn noticed(&self, first: &Expected, seen: &Expected) -> bool {
        differ_noticeably(&seen.truth, &first.truth, &self.shapes.outputs, self.tolerance)
    }

    fn perturb(&mut self, params: &[TensorData], inputs: &[TensorData], first: &Expected) -> Result<(), Stop> {
        for (position, tensor) in self.shapes.inputs.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = inputs.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            let seen = self.answer(&changed)?;
            if !self.noticed(first, &seen) {
                let message = format!("the result does not depend on the input `{}`", tensor.name);
                self.facts.warnings.push(warning("input_has_no_effect", message));
            }
        }
        for (position, tensor) in self.shapes.params.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = params.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            self.oracle.init(&changed, &|_| None)?;
            let seen = self.answer(inputs)?;
            if !self.noticed(first, &seen) {
                let message = format!("the result does not depend on the weights `{}`", tensor.name);
                self.facts.warnings.push(warning("parameter_has_no_effect", message));
            }
        }
        Ok(())
    }
}

/// Zero has two signs, and a model that multiplies by zero gives both.
fn is_same_number(left: f64, right: f64) -> bool {
    left.partial_cmp(&right) == Some(std::cmp::Ordering::Equal)
}

fn warning(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Warning, message, line: None }
}

fn time_baseline(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    shapes: &ConcreteShapes,
    libraries: &ReferenceLibraries,
    machine: &MachineFacts,
    seeds: &mut SecretSeeds,
) -> Result<f64, OracleError> {
    let core = OneCore::take();
    let mut sweep = CacheSweep::new(machine.last_level_cache_bytes);
    let core = core.as_ref().map(OneCore::number);
    let mut session = Session::start(grounds.host, &timed(grounds, spec, shapes, libraries, core), grounds.cancel)?;
    session.init(&generate_all(&shapes.params, seeds.draw(), InputKind::Declared))?;
    time_calls(|| {
        session.prepare(&generate_all(&shapes.inputs, seeds.draw(), InputKind::Declared), false);
        sweep.sweep();
        session.call()
    })
}

/// On a device the process that was examined is timed, too: another one would have to take hold of it first.
fn time_on_device(
    oracle: &mut Oracle,
    (number, shapes): (usize, &ConcreteShapes),
    seeds: &mut SecretSeeds,
) -> Result<f64, OracleError> {
    let missing = || OracleError::Failure(StepFailure::fatal("worker.internal", "the reference has no process"));
    let session = oracle.reference().ok_or_else(missing)?;
    session.select(number)?;
    session.init(&generate_all(&shapes.params, seeds.draw(), InputKind::Declared))?;
    let sets = stage_sets(session, shapes, seeds)?;
    time_calls(|| session.sample(&[Draw::new(sets.len(), seeds.draw())]))
}

fn timed<'a>(
    grounds: &Grounds<'a>,
    spec: &'a TaskSpec,
    shapes: &'a ConcreteShapes,
    libraries: &'a ReferenceLibraries,
    core: Option<usize>,
) -> SessionOptions<'a> {
    SessionOptions {
        library: &libraries.reference,
        torch: spec.torch.as_ref(),
        shapes: std::slice::from_ref(shapes),
        double: false,
        memory_bytes: spec.limits.memory_bytes.saturating_mul(PATIENCE),
        call_timeout_ms: spec.limits.call_timeout_ms.saturating_mul(PATIENCE),
        core,
        require_sandbox: false,
        device: grounds.device,
        queues: Queues::Usual,
        stock_bytes: 0,
    }
}

/// The median of some calls.
fn time_calls(mut call: impl FnMut() -> Result<CallTime, SessionError>) -> Result<f64, OracleError> {
    let started = Instant::now();
    let mut times = Vec::new();
    // The first call finds out, the others count.
    for position in 0..=MAX_TIMED_CALLS {
        if times.len() >= MIN_TIMED_CALLS && started.elapsed() > TIMING_LIMIT {
            break;
        }
        let time = call()?;
        if position > 0 {
            #[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^53 nanoseconds")]
            times.push(time.inside_ns as f64);
        }
    }
    Ok(median(&times))
}
