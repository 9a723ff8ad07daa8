//! Is a program right? Asked on inputs that it has not seen, against the truth in double precision.
//!
//! Smallest shape first, and a shape that fails is the last one: most wrong programs are found out within a few calls.

mod examination;
mod oracle;
mod papers;
mod question;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, LARGE_CALL_BYTES, TaskSpec};
use nightshift_protocol::verdict::{ERROR_HISTOGRAM_BOUNDS, ProcessEnd, Severity};
use nightshift_toolchain::Host;

use self::examination::{Examination, Stop};
pub(crate) use self::examination::{allowed_error, reachable};
pub(crate) use self::oracle::{Expected, LaunchedOracle, Oracle, OracleError};
use self::papers::Asking;
pub(crate) use self::question::MAX_PERTURBED_TENSORS;
use crate::cost::Cost;
use crate::golden::{Recorded, Recording};
use crate::inputs::{SecretSeeds, TensorData};
use crate::runner::{Grounds, Session, SessionOptions, Stay};
use crate::stock::Stock;
use nightshift_sandbox::Queues;
use nightshift_sandbox::process::CancelFlag;

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
    host: &Host,
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
    let mut check = || {
        let mut answers = Answers::Live { reference: &libraries.reference, truth: &libraries.truth, kept: None };
        check_with(grounds, spec, &libraries.candidate, &mut answers, require_sandbox, seeds)
    };
    let (report, known) = check()?;
    // Where the reference breaks down as well, the machine lacks something: nobody blames the program before it was asked, too.
    if known && report.end != ProcessEnd::Finished { check().map(|(report, _)| report) } else { Ok(report) }
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
        .map(|(report, _)| report)
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
    let (report, _) = check_with(grounds, spec, reference, &mut answers, false, &mut SecretSeeds::fixed(seed))?;
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

/// Gives the report, and whether reference and truth were left out because their answers were known.
fn check_with(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    library: &Path,
    answers: &mut Answers<'_>,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
) -> Result<(CheckReport, bool), StepFailure> {
    let shapes = smallest_first(spec)?;
    let default =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let mut check = Check {
        grounds,
        spec,
        library,
        require_sandbox,
        stock_bytes: Stock::of(&default, LARGE_CALL_BYTES).bytes(&default, LARGE_CALL_BYTES),
        report: CheckReport {
            end: ProcessEnd::Finished,
            cases: Vec::new(),
            error_histogram: vec![0; ERROR_HISTOGRAM_BOUNDS.len() + 1],
            deterministic: None,
            findings: Vec::new(),
            printed: String::new(),
            cost: Vec::new(),
        },
        known: false,
        cost: Cost::start(),
    };
    for (group, together) in grounds.together(&shapes).into_iter().enumerate() {
        match check.of_shapes(group, together, answers, seeds) {
            Ok(()) => {}
            Err(Stop::Wrong) => break,
            Err(Stop::Candidate(error)) => {
                check.report.end = error.into_end()?;
                break;
            }
            Err(Stop::Failure(failure)) => return Err(failure),
        }
    }
    check.report.cost = check.cost.parts();
    Ok((check.report, check.known))
}

/// A check at work.
struct Check<'a> {
    grounds: &'a Grounds<'a>,
    spec: &'a TaskSpec,
    library: &'a Path,
    require_sandbox: bool,
    /// What a measurement of the program keeps on the device.
    stock_bytes: u64,
    report: CheckReport,
    /// Whether answers were known.
    known: bool,
    cost: Cost,
}

impl<'a> Check<'a> {
    /// At shapes that one process serves, the `group`th ones of the task.
    fn of_shapes(
        &mut self,
        group: usize,
        shapes: &[ConcreteShapes],
        answers: &mut Answers<'_>,
        seeds: &mut SecretSeeds,
    ) -> Result<(), Stop> {
        let (grounds, spec) = (self.grounds, self.spec);
        let options = self.options(shapes);
        let mut asking = asking(grounds, spec, shapes, answers)?;
        if grounds.standby.is_some() {
            self.cost.part("turn");
        }
        let (mut candidate, mut oracle) = self.processes(&options, answers, &asking)?;
        if let Answers::Live { kept: Some(_), .. } = answers {
            oracle.record();
        }
        // What passes is timed next: of a task of PyTorch where it was checked, else in a new process beside a new baseline.
        grounds.expect_programs(if spec.torch.is_some() { 1 } else { 2 });
        let mut waited = Duration::ZERO;
        let outcome = shapes.iter().enumerate().try_for_each(|(number, shapes)| {
            let turn = grounds.beside_others(Stay::Driver);
            candidate.select(number)?;
            oracle.select(number, shapes)?;
            drop(turn);
            let questions = asking.questions(number, seeds);
            let (candidate, oracle, report, waited) = (&mut candidate, &mut oracle, &mut self.report, &mut waited);
            let mut examination = Examination { grounds, spec, shapes, candidate, oracle, questions, report, waited };
            examination.run(group + number == 0)?;
            if self.report.cases.iter().any(|case| !case.passed) { Err(Stop::Wrong) } else { Ok(()) }
        });
        self.cost.part("calls");
        self.cost.move_to("calls", "waiting", waited);
        let printed = candidate.printed();
        if !printed.is_empty() {
            self.report.printed = printed;
        }
        // A program may print what it was asked and what came of it, or say it as it ends, and values that were wrong are told
        // with the truth.
        let says_nothing = outcome.is_ok() && self.report.findings.is_empty() && self.report.printed.is_empty();
        self.known |= asking.is_known();
        let turn = asking.end(says_nothing);
        if let (Answers::Live { kept: Some(kept), .. }, Some(answered)) = (answers, oracle.take_answers()) {
            kept.extend(answered);
        }
        let broke_a_rule = self.report.findings.iter().any(|finding| finding.severity == Severity::Violation);
        if outcome.is_ok() && !broke_a_rule {
            grounds.keep_for_measurement(&mut candidate, &options);
        }
        let beside = grounds.beside_others(Stay::Driver);
        self.cost.part("waiting");
        grounds.leave([candidate].into_iter().chain(oracle.into_sessions()));
        drop((beside, turn));
        self.cost.part("ends");
        outcome
    }

    fn options<'o>(&self, shapes: &'o [ConcreteShapes]) -> SessionOptions<'o>
    where
        'a: 'o,
    {
        SessionOptions {
            library: self.library,
            torch: self.spec.torch.as_ref(),
            shapes,
            double: false,
            memory_bytes: self.spec.limits.memory_bytes,
            call_timeout_ms: self.spec.limits.call_timeout_ms,
            core: None,
            require_sandbox: self.require_sandbox,
            device: self.grounds.device,
            queues: Queues::OneForCopies,
            stock_bytes: self.stock_bytes,
        }
    }

    /// The program's process, and who answers beside it. Neither has a place on the device any more: from here on one is taken
    /// for each call, as making inputs and comparing results needs none.
    fn processes(
        &mut self,
        options: &SessionOptions<'_>,
        answers: &Answers<'_>,
        asking: &Asking<'_>,
    ) -> Result<(Session, Oracle), Stop> {
        let (grounds, spec) = (self.grounds, self.spec);
        let beside = grounds.beside_others(Stay::Driver);
        self.cost.part("waiting");
        let candidate = grounds.launch(options);
        let (beside, candidate, oracle) = match (answers, asking.answers()) {
            (Answers::Live { reference, truth, .. }, None) => {
                let launched = Oracle::launch(grounds, spec, options.shapes, reference, truth)?;
                launched.wait_with(candidate, grounds, beside)
            }
            (_, known) => {
                let (beside, [candidate]) = grounds.ready(beside, [candidate]);
                (beside, candidate, Ok(Oracle::of_answers(spec, known.unwrap_or_default())))
            }
        };
        drop(beside);
        self.cost.part("processes");
        Ok((candidate?, oracle?))
    }
}

/// What is asked at some shapes.
fn asking<'a>(
    grounds: &Grounds<'a>,
    spec: &TaskSpec,
    shapes: &[ConcreteShapes],
    answers: &mut Answers<'_>,
) -> Result<Asking<'a>, StepFailure> {
    Ok(match answers {
        Answers::Live { reference, truth, kept: None } => {
            Asking::like_others(grounds, spec, shapes, (reference, truth))
        }
        Answers::Live { kept: Some(_), .. } => Asking::once(),
        Answers::Recorded(recording) => Asking::recorded(recording.take().ok_or_else(one_shape_only)?.answers),
    })
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

/// Whether two lists of tensors have the same bits.
pub(crate) fn same_bits(left: &[TensorData], right: &[TensorData]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.same_bits(right))
}
