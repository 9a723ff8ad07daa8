//! Is a program right? Asked on inputs that it has not seen, against the truth in double precision.
//!
//! Smallest shape first, and a shape that fails is the last one: most wrong programs are found out within a few calls.

mod oracle;

use std::path::{Path, PathBuf};
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec};
use nightshift_protocol::verdict::{CheckCase, ERROR_HISTOGRAM_BOUNDS, Finding, ProcessEnd, Severity};

pub(crate) use self::oracle::{Expected, LaunchedOracle, Oracle, OracleError};
use crate::compare::compare;
use crate::cost::Cost;
use crate::golden::{Recorded, Recording};
use crate::inputs::{InputKind, SecretSeeds, TensorData, generate, generate_all};
use crate::process::{CancelFlag, JailHost, side_by_side};
use crate::runner::{Call, Grounds, Launched, Session, SessionError, SessionOptions, note};

/// Calls of a shape that are made even when the first is wrong: they tell stale results from wrong ones.
const CASES_BEFORE_STOPPING: usize = 3;

/// Most tensors that are changed one at a time.
pub(crate) const MAX_PERTURBED_TENSORS: usize = 16;

/// A reference's error below this counts as this: luck may not tighten the limit for everybody else.
const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// Changes of the declared inputs that are tried, with the names of their cases.
const SCALED_KINDS: [(InputKind, &str); 3] = [
    (InputKind::ScaledUp, "scaled_up"),
    (InputKind::ScaledDown, "scaled_down"),
    (InputKind::SignsFlipped, "signs_flipped"),
];

/// The three built programs of a check.
#[derive(Debug, Clone)]
pub struct Libraries {
    /// The program in question.
    pub candidate: PathBuf,
    /// The reference, as it is timed.
    pub reference: PathBuf,
    /// The reference in double precision.
    pub truth: PathBuf,
}

/// Checks a program. That it is wrong, crashes or hangs is a report; a failure is a broken machine or reference.
/// Blocks: call it from a dedicated thread.
pub fn check(
    host: &JailHost,
    spec: &TaskSpec,
    libraries: &Libraries,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
    cancel: &CancelFlag,
) -> Result<CheckReport, StepFailure> {
    check_on(
        &Grounds { host, device: None, cancel, gate: None, standby: None },
        spec,
        libraries,
        require_sandbox,
        seeds,
    )
}

/// [`check`], on the host or on a device.
pub fn check_on(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    libraries: &Libraries,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
) -> Result<CheckReport, StepFailure> {
    let mut answers = Answers::Live { reference: &libraries.reference, truth: &libraries.truth, kept: None };
    check_with(grounds, spec, &libraries.candidate, &mut answers, require_sandbox, seeds)
}

/// [`check`] by what reference and truth once answered, without either.
pub(crate) fn check_recorded(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    candidate: &Path,
    recording: Recording,
    require_sandbox: bool,
) -> Result<CheckReport, StepFailure> {
    let mut seeds = SecretSeeds::fixed(recording.seed);
    check_with(grounds, spec, candidate, &mut Answers::Recorded(Some(recording)), require_sandbox, &mut seeds)
}

/// Lets the reference be checked against itself, and keeps the answers; none when it does not pass.
pub(crate) fn record(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    reference: &Path,
    truth: &Path,
    seed: u64,
) -> Result<Option<Recording>, StepFailure> {
    let mut answers = Answers::Live { reference, truth, kept: Some(Vec::new()) };
    let report = check_with(grounds, spec, reference, &mut answers, false, &mut SecretSeeds::fixed(seed))?;
    let passed = report.end == ProcessEnd::Finished && report.cases.iter().all(|case| case.passed);
    let Answers::Live { kept: Some(answers), .. } = answers else { return Ok(None) };
    Ok((passed && !answers.is_empty()).then_some(Recording { seed, answers }))
}

/// Where the right answers come from.
enum Answers<'a> {
    /// From reference and truth; they are kept where there is a place for them.
    Live { reference: &'a Path, truth: &'a Path, kept: Option<Vec<Option<Recorded>>> },
    /// From a recording, of which there is one for a check.
    Recorded(Option<Recording>),
}

fn check_with(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    library: &Path,
    answers: &mut Answers<'_>,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
) -> Result<CheckReport, StepFailure> {
    let shapes = smallest_first(spec)?;
    let mut report = CheckReport {
        end: ProcessEnd::Finished,
        cases: Vec::new(),
        error_histogram: vec![0; ERROR_HISTOGRAM_BOUNDS.len() + 1],
        deterministic: None,
        findings: Vec::new(),
        printed: String::new(),
        cost: Vec::new(),
    };
    let mut cost = Cost::start();
    for (group, together) in grounds.together(&shapes).into_iter().enumerate() {
        let options = SessionOptions {
            library,
            torch: spec.torch.as_ref(),
            shapes: together,
            double: false,
            memory_bytes: spec.limits.memory_bytes,
            call_timeout_ms: spec.limits.call_timeout_ms,
            core: None,
            require_sandbox,
            device: grounds.device,
        };
        let beside = grounds.beside_others();
        cost.part("waiting");
        let candidate = grounds.launch(&options);
        let oracle = match answers {
            Answers::Live { reference, truth, .. } => Ok(Oracle::launch(grounds, spec, together, reference, truth)?),
            Answers::Recorded(recording) => Err(recording.take()),
        };
        let mut candidate = match candidate.and_then(Launched::wait) {
            Ok(session) => session,
            Err(error) => {
                report.end = error.into_end()?;
                break;
            }
        };
        let mut oracle = match oracle {
            Ok(launched) => launched.wait()?,
            Err(Some(recording)) => Oracle::of_recording(spec, recording),
            Err(None) => return Err(one_shape_only()),
        };
        if let Answers::Live { kept: Some(_), .. } = answers {
            oracle.record();
        }
        // What passes is timed next, beside its baseline.
        grounds.expect_programs(2);
        // From here on a place is taken for each call: making inputs and comparing results needs none.
        drop(beside);
        cost.part("processes");
        let mut waited = Duration::ZERO;
        let outcome = together.iter().enumerate().try_for_each(|(number, shapes)| {
            let turn = grounds.beside_others();
            candidate.select(number)?;
            oracle.select(number, shapes)?;
            drop(turn);
            let (candidate, oracle, report, waited) = (&mut candidate, &mut oracle, &mut report, &mut waited);
            let mut examination = Examination { grounds, spec, shapes, candidate, oracle, seeds, report, waited };
            examination.run(group + number == 0)?;
            if report.cases.iter().any(|case| !case.passed) { Err(Stop::Wrong) } else { Ok(()) }
        });
        cost.part("calls");
        cost.move_to("calls", "waiting", waited);
        let printed = candidate.printed();
        if !printed.is_empty() {
            report.printed = printed;
        }
        if let (Answers::Live { kept: Some(kept), .. }, Some(answered)) = (&mut *answers, oracle.take_answers()) {
            kept.extend(answered);
        }
        let beside = grounds.beside_others();
        cost.part("waiting");
        grounds.leave([candidate].into_iter().chain(oracle.into_sessions()));
        drop(beside);
        cost.part("ends");
        match outcome {
            Ok(()) => {}
            Err(Stop::Wrong) => break,
            Err(Stop::Candidate(error)) => {
                report.end = error.into_end()?;
                break;
            }
            Err(Stop::Failure(failure)) => return Err(failure),
        }
    }
    report.cost = cost.parts();
    Ok(report)
}

fn one_shape_only() -> StepFailure {
    StepFailure::fatal("task.golden_unusable", "golden data are of one shape, and the task has several")
}

/// The shapes of a task, the smallest first.
pub(crate) fn smallest_first(spec: &TaskSpec) -> Result<Vec<ConcreteShapes>, StepFailure> {
    let shapes = spec.all_shapes();
    let mut shapes = shapes.map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    shapes.sort_by_key(total_bytes);
    Ok(shapes)
}

fn total_bytes(shapes: &ConcreteShapes) -> u64 {
    shapes.inputs.iter().chain(&shapes.params).chain(&shapes.outputs).map(ConcreteTensor::size_bytes).sum()
}

/// Why an examination ends early.
enum Stop {
    /// It is wrong at this shape: others say no more.
    Wrong,
    Candidate(SessionError),
    Failure(StepFailure),
}

impl From<SessionError> for Stop {
    fn from(error: SessionError) -> Self {
        Self::Candidate(error)
    }
}

impl From<StepFailure> for Stop {
    fn from(failure: StepFailure) -> Self {
        Self::Failure(failure)
    }
}

impl From<OracleError> for Stop {
    fn from(error: OracleError) -> Self {
        Self::Failure(error.into())
    }
}

/// One program at one shape.
struct Examination<'a> {
    grounds: &'a Grounds<'a>,
    spec: &'a TaskSpec,
    shapes: &'a ConcreteShapes,
    candidate: &'a mut Session,
    oracle: &'a mut Oracle,
    seeds: &'a mut SecretSeeds,
    report: &'a mut CheckReport,
    /// Time spent waiting for a place on the device.
    waited: &'a mut Duration,
}

/// A finished case.
struct Seen {
    expected: Expected,
    outputs: Vec<TensorData>,
}

impl<'a> Examination<'a> {
    fn run(&mut self, perturb: bool) -> Result<(), Stop> {
        let first_case = self.report.cases.len();
        let params = generate_all(&self.shapes.params, self.seeds.draw(), InputKind::Declared);
        self.init(&params)?;

        let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        let Some(first) = self.case("declared", &inputs)? else {
            let message = "the reference gives values that are not finite for its declared inputs";
            return Err(StepFailure::fatal("task.reference_not_finite", message).into());
        };
        if let Some(again) = self.case("repeat", &inputs)? {
            self.compare_bits(&first, &again);
        }
        let others = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        if let Some(second) = self.case("same_pointers", &others)?
            && unchanged(&first, &second)
        {
            self.violation("stale_output", "new contents at the same addresses gave the results of the old ones");
        }
        if self.failed_since(first_case, CASES_BEFORE_STOPPING) {
            return Ok(());
        }
        for (kind, name) in SCALED_KINDS {
            let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), kind);
            self.case(name, &inputs)?;
            if self.failed_since(first_case, CASES_BEFORE_STOPPING) {
                return Ok(());
            }
        }
        if perturb {
            self.perturb_inputs(&inputs, &first)?;
            self.perturb_params(&params, &inputs, &first)?;
        }
        Ok(())
    }

    fn failed_since(&self, first_case: usize, at_least: usize) -> bool {
        let cases = self.report.cases.get(first_case..).unwrap_or_default();
        cases.len() >= at_least && cases.iter().any(|case| !case.passed)
    }

    /// Waits for a place on the device.
    fn turn(&mut self) -> Option<RwLockReadGuard<'a, ()>> {
        let (asked, grounds) = (Instant::now(), self.grounds);
        let turn = grounds.beside_others();
        *self.waited += asked.elapsed();
        turn
    }

    /// Hands the weights to everybody.
    fn init(&mut self, params: &[TensorData]) -> Result<(), Stop> {
        let _turn = self.turn();
        self.candidate.init(params)?;
        Ok(self.oracle.init(params)?)
    }

    /// One checked call; nothing when the reference itself has no finite answer for these inputs.
    fn case(&mut self, name: &str, inputs: &[TensorData]) -> Result<Option<Seen>, Stop> {
        let turn = self.turn();
        if self.grounds.device.is_none() {
            let Some(expected) = self.oracle.answer(inputs)? else { return Ok(None) };
            let call = self.candidate.run(inputs)?;
            return Ok(Some(self.judge(name, expected, call)));
        }
        // On a device most of the time goes into copies, to and fro, which do not disturb each other. What the program makes
        // of inputs that ask nothing does not count, but it has to survive them.
        let (oracle, candidate) = (&mut *self.oracle, &mut *self.candidate);
        let (call, answered) = side_by_side(|| candidate.run(inputs), || oracle.ask(inputs));
        drop(turn);
        let (answered, call) = (answered?, call?);
        Ok(answered.map(|answered| {
            let expected = self.oracle.judge(answered);
            self.judge(name, expected, call)
        }))
    }

    fn judge(&mut self, name: &str, expected: Expected, call: Call) -> Seen {
        for breach in &call.breaches {
            note(&mut self.report.findings, breach.finding());
        }
        let found = compare(&call.outputs, &expected.truth, &self.shapes.outputs, &self.spec.tolerance);
        for (total, count) in self.report.error_histogram.iter_mut().zip(found.histogram) {
            *total += count;
        }
        let allowed = allowed_error(expected.reference_error, self.spec.tolerance.reference_error_factor);
        let within = found.wrong_elements == 0 && found.largest_error <= 1.0;
        if within && found.largest_error > allowed {
            let message = format!(
                "the error is within tolerance, but {:.0} times the reference's own: more than the {} times that are \
                 allowed",
                found.largest_error / expected.reference_error,
                self.spec.tolerance.reference_error_factor
            );
            note(&mut self.report.findings, warning("less_precise_than_reference", message));
        }
        self.report.cases.push(CheckCase {
            shape: self.shapes.name.clone(),
            inputs: name.to_owned(),
            passed: within && found.largest_error <= allowed,
            wrong_elements: found.wrong_elements,
            elements: found.elements,
            worst: found.worst,
            reference_normalized_error: expected.reference_error,
        });
        Seen { expected, outputs: call.outputs }
    }

    fn compare_bits(&mut self, first: &Seen, again: &Seen) {
        let same = same_bits(&first.outputs, &again.outputs);
        self.report.deterministic = Some(same && self.report.deterministic.unwrap_or(true));
        if !same {
            let message = "two calls with equal inputs gave different bits: it may read memory that it did not write";
            note(&mut self.report.findings, warning("not_deterministic", message.to_owned()));
        }
    }

    fn perturb_inputs(&mut self, inputs: &[TensorData], first: &Seen) -> Result<(), Stop> {
        for (position, tensor) in self.shapes.inputs.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = inputs.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            if let Some(seen) = self.case(&format!("changed:{}", tensor.name), &changed)?
                && unchanged(first, &seen)
            {
                let message = format!("the result does not depend on the input `{}`, as it has to", tensor.name);
                self.violation("ignores_input", &message);
            }
        }
        Ok(())
    }

    fn perturb_params(&mut self, params: &[TensorData], inputs: &[TensorData], first: &Seen) -> Result<(), Stop> {
        for (position, tensor) in self.shapes.params.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = params.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            self.init(&changed)?;
            if let Some(seen) = self.case(&format!("changed:{}", tensor.name), inputs)?
                && unchanged(first, &seen)
            {
                let message = format!("the result does not depend on the weights `{}`, as it has to", tensor.name);
                self.violation("ignores_parameter", &message);
            }
        }
        Ok(())
    }

    fn violation(&mut self, code: &str, message: &str) {
        let finding =
            Finding { code: code.to_owned(), severity: Severity::Violation, message: message.to_owned(), line: None };
        note(&mut self.report.findings, finding);
    }
}

fn warning(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Warning, message, line: None }
}

/// Whether the program's results stayed the same, bit by bit, although the truth changed.
fn unchanged(before: &Seen, after: &Seen) -> bool {
    same_bits(&before.outputs, &after.outputs) && !same_bits(&before.expected.truth, &after.expected.truth)
}

pub(crate) fn same_bits(left: &[TensorData], right: &[TensorData]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.same_bits(right))
}

/// The largest normalized error that passes, given the reference's own. An exact reference says nothing about what
/// single precision can do, so the tolerance alone decides then.
pub(crate) fn allowed_error(reference_error: f64, factor: f64) -> f64 {
    if reference_error <= 0.0 {
        return 1.0;
    }
    (reference_error.max(SMALLEST_REFERENCE_ERROR) * factor).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_the_limit_when_the_reference_is_exact_or_coarse() {
        assert!((allowed_error(0.0, 64.0) - 1.0).abs() < 1e-12);
        assert!((allowed_error(0.5, 64.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_precise_reference_asks_for_precision_but_not_for_luck() {
        assert!((allowed_error(0.001, 64.0) - 0.064).abs() < 1e-12);
        assert!((allowed_error(1e-9, 64.0) - 0.0064).abs() < 1e-12);
    }
}
