//! The expected values: the reference in double precision, and how far the reference itself is from it.

use std::path::Path;

use nightshift_protocol::last_words::last_words;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, PrecisionPolicy, Tolerance};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::ProcessError;

use super::judge::{ReferenceError, all_finite};
use super::{launch, open};
use crate::breach::Breach;
use crate::draw::Draw;
use crate::memory::{Memory, MemoryError, Operand};
use crate::program::context::ExecutionContext;
use crate::program::{Arithmetic, Launched, Program, ProgramError, ProgramFile, ProgramOptions};

/// Error code of a failed reference.
pub(crate) const REFERENCE_FAILED: &str = "reference.failed";

/// The failure of the reference or the truth.
#[derive(Debug)]
pub(crate) enum OracleError {
    /// The process of the reference or the truth ended.
    Ended(ProcessEnd),
    /// It could not be run at all.
    Failure(StepFailure),
}

impl From<ProgramError> for OracleError {
    fn from(error: ProgramError) -> Self {
        match error.into_end() {
            Ok(end) => Self::Ended(end),
            Err(failure) => Self::Failure(failure),
        }
    }
}

impl From<MemoryError> for OracleError {
    fn from(error: MemoryError) -> Self {
        Self::Failure(error.into())
    }
}

impl From<ProcessError> for OracleError {
    fn from(error: ProcessError) -> Self {
        Self::Failure(error.into())
    }
}

impl From<OracleError> for StepFailure {
    fn from(error: OracleError) -> Self {
        match error {
            OracleError::Ended(end) => {
                Self::retriable(REFERENCE_FAILED, format!("the reference broke down: {}", end.describe()))
            }
            OracleError::Failure(failure) => failure,
        }
    }
}

/// Adds the reason that a reference printed to its failure.
pub(crate) fn with_reason(mut failure: StepFailure, printed: &str) -> StepFailure {
    if let (REFERENCE_FAILED, Some(said)) = (failure.code.as_str(), last_words(printed))
        && !failure.message.contains(&said)
    {
        failure.message = format!("{}: {said}", failure.message);
    }
    failure
}

/// The answers of reference and truth to a set of inputs. Their outputs stay in their memory until the next call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// The reference's largest normalized error, or the one that rounding makes which the task's policy allows.
    pub(crate) reference_error: ReferenceError,
    /// The reference's own one.
    pub(crate) own_error: ReferenceError,
    /// Rules that reference or truth broke.
    pub(crate) breaches: Vec<Breach>,
}

/// Reference and truth, at one shape at a time.
#[derive(Debug)]
pub(crate) struct Oracle<M: Memory> {
    pub(crate) reference: Program<M>,
    pub(crate) truth: Program<M>,
    /// Low bits of significands that the task's policy allows to be dropped.
    dropped_bits: Option<u32>,
    weights: Vec<Draw>,
}

/// Reference and truth whose processes may still be starting.
#[derive(Debug)]
pub(crate) struct LaunchedOracle<'a> {
    reference: (ProgramFile<'a>, Launched),
    truth: (ProgramFile<'a>, Launched),
}

impl<'a> LaunchedOracle<'a> {
    /// Starts both processes, or takes those in which they are loaded. The reference keeps its inputs where it is examined itself.
    pub(crate) fn start(
        context: &ExecutionContext<'_>,
        reference: &'a Path,
        truth: &'a Path,
        options: &ProgramOptions<'_>,
        is_examined: bool,
    ) -> Result<Self, OracleError> {
        let is_strict = options.spec.precision == PrecisionPolicy::Strict;
        let arithmetic = if is_strict { Arithmetic::Strict } else { Arithmetic::Own };
        let reference = ProgramFile { arithmetic, reuses_inputs: !is_examined, ..ProgramFile::baseline(reference) };
        let truth = ProgramFile::truth(truth);
        Ok(Self {
            reference: (reference, launch(context, &reference, options)?),
            truth: (truth, launch(context, &truth, options)?),
        })
    }

    /// The processes, to be made ready.
    pub(crate) fn processes(&mut self) -> [&mut Launched; 2] {
        [&mut self.reference.1, &mut self.truth.1]
    }

    /// Loads both programs. Their processes have to be ready.
    pub(crate) fn open<M: Memory>(
        self,
        context: &ExecutionContext<'_>,
        memory: &M,
        options: &ProgramOptions<'_>,
    ) -> Result<Oracle<M>, OracleError> {
        let options = ProgramOptions { require_sandbox: false, ..*options };
        let ((reference, first), (truth, second)) = (self.reference, self.truth);
        Ok(Oracle {
            reference: open(context, memory, first, &reference, &options)?,
            truth: open(context, memory, second, &truth, &options)?,
            dropped_bits: options.spec.precision.dropped_bits(),
            weights: Vec::new(),
        })
    }
}

impl<M: Memory> Oracle<M> {
    /// Uses the shape of this number from now on.
    pub(crate) fn select(&mut self, number: usize) -> Result<(), OracleError> {
        self.reference.select(number)?;
        Ok(self.truth.select(number)?)
    }

    /// Hands both the weights.
    pub(crate) fn init(&mut self, memory: &M, params: &[Draw]) -> Result<(), OracleError> {
        self.weights = params.to_vec();
        self.reference.init(memory, params)?;
        Ok(self.truth.init(memory, params)?)
    }

    /// Calls both. Returns nothing when an output is not finite: such inputs ask nothing that could be answered.
    pub(crate) fn ask(
        &mut self,
        memory: &M,
        shapes: &ConcreteShapes,
        inputs: &[Draw],
        tolerance: &Tolerance,
        look_for_breaches: bool,
    ) -> Result<Option<Answer>, OracleError> {
        let mut breaches = Vec::new();
        for program in [&mut self.reference, &mut self.truth] {
            program.call_on(memory, inputs)?;
            if look_for_breaches {
                breaches.extend(program.breaches(memory, 1)?);
            }
            program.trim_where_large()?;
        }
        if !all_finite(memory, &self.reference.outputs(0))? || !all_finite(memory, &self.truth.outputs(0))? {
            return Ok(None);
        }
        let (reference, truth) = (self.reference.outputs(0), self.truth.outputs(0));
        let own_error = ReferenceError::find(memory, &reference, &truth, &shapes.outputs, tolerance)?;
        let mut reference_error = own_error;
        if let Some(bits) = self.dropped_bits {
            let (draws, expected) = ((&self.weights[..], inputs), self.truth.outputs(0));
            let error = rounding_error(memory, &mut self.reference, bits, shapes, draws, &expected, tolerance)?;
            reference_error = reference_error.max(error);
            self.reference.call_on(memory, inputs)?;
            self.reference.trim_where_large()?;
        }
        Ok(Some(Answer { reference_error, own_error, breaches }))
    }

    /// The truth's outputs to the last inputs.
    pub(crate) fn truth_outputs(&self) -> Vec<Operand<'_, M>> {
        self.truth.outputs(0)
    }

    /// Ends both, or keeps them loaded.
    pub(crate) fn finish(self, context: &ExecutionContext<'_>) {
        self.reference.finish(context);
        self.truth.finish(context);
    }

    /// What the reference printed, and in double precision where that differs: either may be the one that broke down.
    pub(crate) fn printed(&self) -> String {
        let (mut printed, of_truth) = (self.reference.printed(), self.truth.printed());
        if of_truth != printed {
            printed.push_str(&of_truth);
        }
        printed
    }
}

/// Returns how far a reference's outputs are from the expected ones with inputs and weights that lose so many low bits of their
/// significands. The reference has the exact weights again afterwards, and outputs for rounded inputs.
pub(crate) fn rounding_error<M: Memory>(
    memory: &M,
    reference: &mut Program<M>,
    bits: u32,
    shapes: &ConcreteShapes,
    (weights, inputs): (&[Draw], &[Draw]),
    expected: &[Operand<'_, M>],
    tolerance: &Tolerance,
) -> Result<ReferenceError, ProgramError> {
    let rounded = |draws: &[Draw]| draws.iter().map(|draw| draw.rounded(bits)).collect::<Vec<_>>();
    reference.init(memory, &rounded(weights))?;
    reference.call_on(memory, &rounded(inputs))?;
    let finite = all_finite(memory, &reference.outputs(0))? && all_finite(memory, expected)?;
    let found = ReferenceError::find(memory, &reference.outputs(0), expected, &shapes.outputs, tolerance)?;
    reference.init(memory, weights)?;
    // Without a finite answer there is no error.
    Ok(if finite { found.of_rounding(&shapes.outputs) } else { ReferenceError::default() })
}
