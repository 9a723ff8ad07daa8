//! What the right answer is: the reference in double precision, and how far the reference itself is from it.

use std::path::Path;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec, Tolerance};
use nightshift_protocol::verdict::ProcessEnd;

use crate::compare::largest_error;
use crate::golden::Recorded;
use crate::inputs::TensorData;
use crate::runner::{Beside, Breach, Call, Enter, Grounds, Launched, Session, SessionError, SessionOptions};
use nightshift_sandbox::Queues;
use nightshift_sandbox::process::run_in_parallel;

/// The reference may take this many times what a candidate may take, in time and memory: it is naive on purpose, and
/// the truth is twice as wide.
const PATIENCE: u64 = 4;

/// The answer to one set of inputs.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// Outputs in double precision.
    pub(crate) truth: Vec<TensorData>,
    /// The reference's outputs.
    pub(crate) reference: Vec<TensorData>,
    /// The reference's own largest normalized error.
    pub(crate) reference_error: f64,
    /// Rules that the reference broke.
    pub(crate) breaches: Vec<Breach>,
}

/// Which of the two broke down, and how.
#[derive(Debug)]
pub(crate) enum OracleError {
    /// The reference's process ended.
    Ended(ProcessEnd),
    /// It could not be run at all.
    Failure(StepFailure),
}

impl From<SessionError> for OracleError {
    fn from(error: SessionError) -> Self {
        match error.into_end() {
            Ok(end) => Self::Ended(end),
            Err(failure) => Self::Failure(failure),
        }
    }
}

impl From<OracleError> for StepFailure {
    fn from(error: OracleError) -> Self {
        match error {
            OracleError::Ended(end) => {
                Self::retriable("reference.failed", format!("the reference broke down: {}", end.describe()))
            }
            OracleError::Failure(failure) => failure,
        }
    }
}

/// What reference and truth said to one set of inputs.
#[derive(Debug)]
pub(crate) enum Answered {
    /// Just now.
    Called {
        /// The truth's call.
        truth: Call,
        /// The reference's call.
        reference: Call,
    },
    /// When it was recorded.
    Known(Recorded),
}

impl Answered {
    /// How far the reference is from the truth.
    pub(crate) fn judged(self, outputs: &[ConcreteTensor], tolerance: &Tolerance) -> Expected {
        let (truth, reference) = match self {
            Self::Called { truth, reference } => (truth, reference),
            Self::Known(Recorded { truth, reference, reference_error }) => {
                return Expected { truth, reference, reference_error, breaches: Vec::new() };
            }
        };
        let reference_error = largest_error(&reference.outputs, &truth.outputs, outputs, tolerance).min(f64::MAX);
        let mut breaches = reference.breaches;
        breaches.extend(truth.breaches);
        Expected { truth: truth.outputs, reference: reference.outputs, reference_error, breaches }
    }
}

/// Where answers come from.
#[derive(Debug)]
enum Source {
    /// From reference and truth.
    Live { reference: Box<Session>, truth: Box<Session> },
    /// From a recording, in its order.
    Recording(std::vec::IntoIter<Option<Recorded>>),
}

/// Reference and truth, at one shape at a time; or what they once said.
#[derive(Debug)]
pub(crate) struct Oracle {
    source: Source,
    outputs: Vec<ConcreteTensor>,
    tolerance: Tolerance,
    on_device: bool,
    /// What was answered so far.
    answers: Option<Vec<Option<Recorded>>>,
}

/// Reference and truth that are getting ready.
#[derive(Debug)]
pub(crate) struct LaunchedOracle {
    reference: Launched,
    truth: Launched,
    terms: Terms,
}

/// What is to be asked of both.
#[derive(Debug)]
struct Terms {
    outputs: Vec<ConcreteTensor>,
    tolerance: Tolerance,
    on_device: bool,
}

impl LaunchedOracle {
    /// Waits for both.
    pub(crate) fn wait(self) -> Result<Oracle, OracleError> {
        let Self { reference, truth, terms } = self;
        Ok(Oracle::live(reference.wait()?, truth.wait()?, terms))
    }

    /// Waits for both and for a program, all started at this place on the device; gives back another one.
    pub(crate) fn wait_with<'a>(
        self,
        program: Result<Launched, SessionError>,
        grounds: &Grounds<'a>,
        beside: Beside<'a>,
    ) -> (Beside<'a>, Result<Session, SessionError>, Result<Oracle, OracleError>) {
        let Self { reference, truth, terms } = self;
        let (beside, [program, reference, truth]) = grounds.ready(beside, [program, Ok(reference), Ok(truth)]);
        let oracle = reference.and_then(|reference| Ok(Oracle::live(reference, truth?, terms)));
        (beside, program, oracle.map_err(OracleError::from))
    }
}

impl Oracle {
    /// Starts both for these shapes, of which the first one comes first.
    pub(crate) fn launch(
        grounds: &Grounds<'_>,
        spec: &TaskSpec,
        shapes: &[ConcreteShapes],
        reference: &Path,
        truth: &Path,
    ) -> Result<LaunchedOracle, OracleError> {
        let launch = |library: &Path, double: bool| {
            let options = SessionOptions {
                library,
                torch: spec.torch.as_ref(),
                shapes,
                double,
                memory_bytes: spec.limits.memory_bytes.saturating_mul(PATIENCE),
                call_timeout_ms: spec.limits.call_timeout_ms.saturating_mul(PATIENCE),
                core: None,
                require_sandbox: false,
                device: grounds.device,
                queues: if double { Queues::One } else { Queues::OneForCopies },
                stock_bytes: 0,
            };
            grounds.launch_again(&options)
        };
        let terms = Terms {
            outputs: shapes.first().map(|shapes| shapes.outputs.clone()).unwrap_or_default(),
            tolerance: spec.tolerance,
            on_device: grounds.device.is_some(),
        };
        Ok(LaunchedOracle { reference: launch(reference, false)?, truth: launch(truth, true)?, terms })
    }

    fn live(reference: Session, truth: Session, terms: Terms) -> Self {
        let source = Source::Live { reference: Box::new(reference), truth: Box::new(truth) };
        let Terms { outputs, tolerance, on_device } = terms;
        Self { source, outputs, tolerance, on_device, answers: None }
    }

    /// What was once answered, for a check that asks the same in the same order.
    pub(crate) fn of_answers(spec: &TaskSpec, answers: Vec<Option<Recorded>>) -> Self {
        Self {
            source: Source::Recording(answers.into_iter()),
            outputs: Vec::new(),
            tolerance: spec.tolerance,
            on_device: false,
            answers: None,
        }
    }

    /// Keeps every answer from here on.
    pub(crate) fn record(&mut self) {
        self.answers = Some(Vec::new());
    }

    /// What was kept.
    pub(crate) fn take_answers(&mut self) -> Option<Vec<Option<Recorded>>> {
        self.answers.take()
    }

    /// Takes the shape of this number for what follows.
    pub(crate) fn select(&mut self, number: usize, shapes: &ConcreteShapes) -> Result<(), OracleError> {
        self.outputs.clone_from(&shapes.outputs);
        let Source::Live { reference, truth } = &mut self.source else { return Ok(()) };
        reference.select(number)?;
        Ok(truth.select(number)?)
    }

    /// Hands both the weights. `enter` takes a place on the device.
    pub(crate) fn init(&mut self, params: &[TensorData], enter: Enter<'_, '_>) -> Result<(), OracleError> {
        let Source::Live { reference, truth } = &mut self.source else { return Ok(()) };
        reference.init_within(params, enter)?;
        Ok(truth.init_within(params, enter)?)
    }

    /// The answer; nothing when it is not finite, so that these inputs ask nothing that could be answered.
    /// Rules that the reference breaks are looked for.
    pub(crate) fn answer(&mut self, inputs: &[TensorData]) -> Result<Option<Expected>, OracleError> {
        Ok(self.ask_with(inputs, Session::run)?.map(|answered| answered.judged(&self.outputs, &self.tolerance)))
    }

    /// What both say; nothing when it is not finite. `enter` takes a place on the device.
    pub(crate) fn ask(&mut self, inputs: &[TensorData], enter: Enter<'_, '_>) -> Result<Option<Answered>, OracleError> {
        self.ask_with(inputs, |session, inputs| session.run_known(inputs, enter))
    }

    fn ask_with(
        &mut self,
        inputs: &[TensorData],
        run: impl Fn(&mut Session, &[TensorData]) -> Result<Call, SessionError> + Sync,
    ) -> Result<Option<Answered>, OracleError> {
        let (reference, truth) = match &mut self.source {
            Source::Recording(answers) => {
                return answers.next().map(|answer| answer.map(Answered::Known)).ok_or_else(|| {
                    let message = "the golden data of the task hold fewer answers than a check has questions";
                    OracleError::Failure(StepFailure::fatal("task.golden_unusable", message))
                });
            }
            Source::Live { reference, truth } => (reference, truth),
        };
        let mut truth = || run(truth, inputs);
        // On a device most of the time goes into copies, to and fro, which do not disturb each other.
        let (truth, reference) = if self.on_device {
            run_in_parallel(truth, || run(reference, inputs))
        } else {
            (truth(), run(reference, inputs))
        };
        let (truth, reference) = (truth?, reference?);
        let finite = truth.outputs.iter().chain(&reference.outputs).all(TensorData::is_finite);
        Ok(finite.then_some(Answered::Called { truth, reference }))
    }

    /// Keeps an answer for a recording, where there is to be one: in the order of the questions.
    pub(crate) fn keep(&mut self, answer: Option<&Expected>) {
        if let Some(answers) = &mut self.answers {
            answers.push(answer.map(|expected| Recorded {
                truth: expected.truth.clone(),
                reference: expected.reference.clone(),
                reference_error: expected.reference_error,
            }));
        }
    }

    /// Both processes, where there are any.
    pub(crate) fn into_sessions(self) -> Vec<Session> {
        match self.source {
            Source::Live { reference, truth } => vec![*reference, *truth],
            Source::Recording(_) => Vec::new(),
        }
    }

    /// How far two results of equal calls are apart, in tolerances, where that may happen at all: on a device libraries add up
    /// in the order in which threads arrive.
    pub(crate) fn apart(&self, left: &[TensorData], right: &[TensorData]) -> Option<f64> {
        self.on_device.then(|| largest_error(left, right, &self.outputs, &self.tolerance))
    }

    /// The process of the reference; none for a recording.
    pub(crate) fn reference(&mut self) -> Option<&mut Session> {
        match &mut self.source {
            Source::Live { reference, .. } => Some(reference),
            Source::Recording(_) => None,
        }
    }

    /// What the reference printed, and in double precision where that differs: either may be the one that broke down.
    pub(crate) fn printed(&self) -> String {
        match &self.source {
            Source::Live { reference, truth } => {
                let (mut printed, of_truth) = (reference.printed(), truth.printed());
                if of_truth != printed {
                    printed.push_str(&of_truth);
                }
                printed
            }
            Source::Recording(_) => String::new(),
        }
    }
}
