//! Comparison with the reference, and the case that asks whether results are complete in the order of the stream.

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor};

use super::cases::Check;
use super::judge::{Limits, ReferenceError, all_finite, compare_outputs, fingerprint};
use super::oracle::{Oracle, OracleError};
use super::test_case::{ShapeHistory, Stop, TestCase};
use crate::breach::{note, violation};
use crate::compare::Comparison;
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::memory::{Memory, Operand};
use crate::program::{Program, ProgramError};

/// Largest outputs of which a program's process holds a second copy, in bytes.
const MAX_COPIED_BYTES: u64 = 1 << 30;

/// Outputs as they were judged beside the reference.
struct Judged {
    /// The comparison that decided.
    found: Comparison,
    passed: bool,
    /// The reference's error for whose sake the tolerance of that comparison is as it is.
    reference_error: f64,
}

impl<M: Memory> Check<'_, M> {
    /// Calls the program so that only what is complete in the order of the stream counts. On the host a call is complete when it
    /// returns, and the stream of a model copies its results in every call.
    pub(super) fn in_stream_order(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        weights: &[Draw],
        seen: &ShapeHistory,
    ) -> Result<(), Stop> {
        let output_bytes: u64 = shapes.outputs.iter().map(ConcreteTensor::size_bytes).sum();
        if self.context.device().is_none() || candidate.process.kind.python || output_bytes > MAX_COPIED_BYTES {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work)?;
        self.init_both(candidate, oracle, weights)?;
        let draws = Draw::all(shapes.inputs.len(), self.seeds.draw(), InputKind::Declared);
        if !call_reference(self.memory, &mut oracle.reference, &draws)? {
            return Ok(());
        }
        let (pair, given) = ((&mut *candidate, &mut *oracle), (weights, &draws[..]));
        let error = seen.reference_error;
        let Judged { found, passed, reference_error } =
            self.beside_reference(shapes, pair, given, error, Program::call_in_order)?;
        self.push(TestCase::InStreamOrder, shapes, passed, found, (reference_error, None));
        if passed {
            return Ok(());
        }
        // A program that is wrong for these inputs in any case is not late.
        if self.beside_reference(shapes, (candidate, oracle), given, error, Program::call_once)?.passed {
            let message = "the results are complete after the work of the call's stream: the program computes on a stream, or in a \
                           kernel, that the call's stream does not wait for";
            note(&mut self.report.findings, violation("output_late", message.to_owned()));
        }
        Ok(())
    }

    pub(super) fn init_both(
        &self,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        weights: &[Draw],
    ) -> Result<(), Stop> {
        oracle.reference.init(self.memory, weights).map_err(OracleError::from)?;
        Ok(candidate.init(self.memory, weights)?)
    }

    /// Calls the candidate, and compares its outputs with those that the reference has for the same weights and inputs.
    fn beside_reference(
        &mut self,
        shapes: &ConcreteShapes,
        (candidate, oracle): (&mut Program<M>, &mut Oracle<M>),
        (weights, inputs): (&[Draw], &[Draw]),
        error: ReferenceError,
        call: impl FnOnce(&mut Program<M>) -> Result<(), ProgramError>,
    ) -> Result<Judged, Stop> {
        candidate.renew_poison(self.memory)?;
        candidate.prepare(self.memory, 0, inputs)?;
        self.call_by(candidate, 1, call)?;
        let judged = self.beside_reference_or_truth(shapes, &candidate.outputs(0), oracle, (weights, inputs), error)?;
        candidate.process.thaw()?;
        Ok(judged)
    }

    /// Compares outputs with the reference's for the same weights and inputs. Where they differ, either may be the imprecise one: the truth
    /// decides, as for the inputs of other cases.
    fn beside_reference_or_truth(
        &self,
        shapes: &ConcreteShapes,
        outputs: &[Operand<'_, M>],
        oracle: &mut Oracle<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        error: ReferenceError,
    ) -> Result<Judged, Stop> {
        let (memory, tolerance) = (self.memory, self.spec.effective_tolerance());
        let limits = Limits::against_reference(&tolerance, error);
        let print = fingerprint(memory, outputs)?;
        let expected = oracle.reference.outputs(0);
        let found = compare_outputs(memory, outputs, &expected, &shapes.outputs, &limits)?;
        drop(expected);
        let passed = limits.pass_beside_reference(&found.outputs);
        let judged = Judged { found, passed, reference_error: error.normalized };
        if passed {
            return Ok(judged);
        }
        self.blame_reference(&mut oracle.reference, shapes, inputs)?;
        oracle.init(memory, weights)?;
        // Without a finite truth, only the reference is left.
        let Some(answer) = oracle.ask(memory, shapes, inputs, &tolerance, false)? else {
            return Ok(judged);
        };
        let limits = Limits::against_truth(&tolerance, answer.reference_error);
        let truth = oracle.truth_outputs();
        let found = compare_outputs(memory, outputs, &truth, &shapes.outputs, &limits)?;
        let own = oracle.reference.outputs(0);
        let passed =
            limits.pass_beside_truth(&found, || compare_outputs(memory, &own, &truth, &shapes.outputs, &limits))?;
        // Kernels that the program left on the device may have completed them meanwhile.
        let passed = passed && fingerprint(memory, outputs)? == print;
        Ok(Judged { found, passed, reference_error: answer.reference_error.normalized })
    }
}

impl<M: Memory> Check<'_, M> {
    /// Calls the program twice in a row, on buffers of their own, and compares what the second call gave: a program that works at the
    /// addresses of an earlier call is wrong there.
    pub(super) fn at_other_addresses(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        weights: &[Draw],
        seen: &ShapeHistory,
    ) -> Result<(), Stop> {
        if self.calls < 2 {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work)?;
        self.init_both(candidate, oracle, weights)?;
        let mut draw = || Draw::all(shapes.inputs.len(), self.seeds.draw(), InputKind::Declared);
        let (first, second) = (draw(), draw());
        if !call_reference(self.memory, &mut oracle.reference, &second)? {
            return Ok(());
        }
        candidate.renew_poison(self.memory)?;
        candidate.prepare(self.memory, 0, &first)?;
        candidate.prepare(self.memory, 1, &second)?;
        self.call_by(candidate, 2, |program| program.call(2).map(|_| ()))?;
        let given = (weights, &second[..]);
        let Judged { found, passed, reference_error } =
            self.beside_reference_or_truth(shapes, &candidate.outputs(1), oracle, given, seen.reference_error)?;
        candidate.process.thaw()?;
        self.push(TestCase::OtherAddresses, shapes, passed, found, (reference_error, None));
        Ok(())
    }

    /// Calls the reference again on the inputs of its last call, and fails if its results differ: no program can agree with it.
    pub(super) fn blame_reference(
        &self,
        reference: &mut Program<M>,
        shapes: &ConcreteShapes,
        inputs: &[Draw],
    ) -> Result<(), Stop> {
        let (memory, tolerance) = (self.memory, &self.spec.effective_tolerance());
        let first = reference.keep_outputs(memory, 0)?;
        call_reference(memory, reference, inputs)?;
        let first: Vec<Operand<'_, M>> = first.iter().map(Operand::Copied).collect();
        let found = compare_outputs(memory, &reference.outputs(0), &first, &shapes.outputs, &Limits::of(tolerance))?;
        if found.wrong_elements == 0 {
            return Ok(());
        }
        let message = "two calls of the reference with equal inputs gave different results: it draws random numbers, as dropout does in \
                       training, or keeps something from one call for the next";
        Err(StepFailure::fatal("task.reference_not_deterministic", message).into())
    }
}

/// Calls a reference. Returns whether its outputs are finite.
pub(super) fn call_reference<M: Memory>(
    memory: &M,
    reference: &mut Program<M>,
    inputs: &[Draw],
) -> Result<bool, OracleError> {
    reference.call_on(memory, inputs)?;
    reference.trim_where_large()?;
    Ok(all_finite(memory, &reference.outputs(0))?)
}
