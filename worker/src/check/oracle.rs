//! What the right answer is: the reference in double precision, and how far the reference itself is from it.

use std::path::Path;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec, Tolerance};
use nightshift_protocol::verdict::ProcessEnd;

use crate::compare::compare;
use crate::inputs::TensorData;
use crate::process::side_by_side;
use crate::runner::{Breach, Call, Grounds, Launched, Session, SessionError, SessionOptions};

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
pub(crate) struct Answered {
    truth: Call,
    reference: Call,
}

/// Reference and truth, at one shape at a time.
#[derive(Debug)]
pub(crate) struct Oracle {
    reference: Session,
    truth: Session,
    outputs: Vec<ConcreteTensor>,
    tolerance: Tolerance,
    on_device: bool,
}

/// Reference and truth that are getting ready.
#[derive(Debug)]
pub(crate) struct LaunchedOracle {
    reference: Launched,
    truth: Launched,
    outputs: Vec<ConcreteTensor>,
    tolerance: Tolerance,
    on_device: bool,
}

impl LaunchedOracle {
    /// Waits for both.
    pub(crate) fn wait(self) -> Result<Oracle, OracleError> {
        let Self { reference, truth, outputs, tolerance, on_device } = self;
        Ok(Oracle { reference: reference.wait()?, truth: truth.wait()?, outputs, tolerance, on_device })
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
            };
            grounds.launch_again(&options)
        };
        Ok(LaunchedOracle {
            on_device: grounds.device.is_some(),
            reference: launch(reference, false)?,
            truth: launch(truth, true)?,
            outputs: shapes.first().map(|shapes| shapes.outputs.clone()).unwrap_or_default(),
            tolerance: spec.tolerance,
        })
    }

    /// Takes the shape of this number for what follows.
    pub(crate) fn select(&mut self, number: usize, shapes: &ConcreteShapes) -> Result<(), OracleError> {
        self.outputs.clone_from(&shapes.outputs);
        self.reference.select(number)?;
        Ok(self.truth.select(number)?)
    }

    /// Hands both the weights.
    pub(crate) fn init(&mut self, params: &[TensorData]) -> Result<(), OracleError> {
        self.reference.init(params)?;
        let widened: Vec<TensorData> = params.iter().map(TensorData::widened).collect();
        Ok(self.truth.init(&widened)?)
    }

    /// The answer; nothing when it is not finite, so that these inputs ask nothing that could be answered.
    pub(crate) fn answer(&mut self, inputs: &[TensorData]) -> Result<Option<Expected>, OracleError> {
        Ok(self.ask(inputs)?.map(|answered| self.judge(answered)))
    }

    /// What both say; nothing when it is not finite.
    pub(crate) fn ask(&mut self, inputs: &[TensorData]) -> Result<Option<Answered>, OracleError> {
        let Self { reference, truth, on_device, .. } = self;
        let mut truth = || {
            let widened: Vec<TensorData> = inputs.iter().map(TensorData::widened).collect();
            truth.run(&widened)
        };
        // On a device most of the time goes into copies, to and fro, which do not disturb each other.
        let (truth, reference) =
            if *on_device { side_by_side(truth, || reference.run(inputs)) } else { (truth(), reference.run(inputs)) };
        let (truth, reference) = (truth?, reference?);
        let finite = truth.outputs.iter().chain(&reference.outputs).all(TensorData::is_finite);
        Ok(finite.then_some(Answered { truth, reference }))
    }

    /// How far the reference is from the truth.
    pub(crate) fn judge(&self, answered: Answered) -> Expected {
        let Answered { truth, reference } = answered;
        let found = compare(&reference.outputs, &truth.outputs, &self.outputs, &self.tolerance);
        let mut breaches = reference.breaches;
        breaches.extend(truth.breaches);
        Expected {
            truth: truth.outputs,
            reference: reference.outputs,
            reference_error: found.largest_error.min(f64::MAX),
            breaches,
        }
    }

    /// Both processes.
    pub(crate) fn into_sessions(self) -> [Session; 2] {
        [self.reference, self.truth]
    }

    /// What the reference printed.
    pub(crate) fn printed(&self) -> String {
        self.reference.printed()
    }
}
