//! Cases that are compared with the reference alone: a single tensor is changed, and a program whose outputs do not follow leaves it
//! out; or only those outputs count that are complete in the order of the stream.

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor};

use super::cases::{Check, Material, Seen, Stop, TestCase};
use super::judge::{Limits, all_finite, compare_outputs, fingerprint};
use super::oracle::{Oracle, OracleError};
use crate::breach::{note, violation};
use crate::compare::Comparison;
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::memory::{Memory, Operand};
use crate::program::{Given, Program, ProgramError};

/// Most tensors of a kind that are changed one at a time; of more, these many are chosen at random.
const MAX_CHANGED_TENSORS: usize = 16;

/// Largest outputs of which a program's process holds a second copy, in bytes.
const MAX_COPIED_BYTES: u64 = 1 << 30;

/// Factors by which weights are scaled, until the reference's outputs change by [`MATTERS`] tolerances.
const SCALES: [f32; 4] = [1.0, 8.0, 64.0, 512.0];

/// A weight matters when the outputs change by so many tolerances.
const MATTERS: f64 = 32.0;

/// Errors in tolerances that pass where a weight was scaled: large weights cost digits that the tolerance of the task does not
/// know of, and a program that ignores the weight is off by [`MATTERS`].
const PASSES_WHEN_SCALED: f64 = 8.0;

impl<M: Memory> Check<'_, M> {
    /// Calls the program so that only what is complete in the order of the stream counts. On the host a call is complete when it
    /// returns, and the stream of a model copies its results in every call.
    pub(super) fn in_stream_order(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        weights: &Material,
        seen: &Seen,
    ) -> Result<(), Stop> {
        let output_bytes: u64 = shapes.outputs.iter().map(ConcreteTensor::size_bytes).sum();
        if self.context.device().is_none() || candidate.process.kind.python || output_bytes > MAX_COPIED_BYTES {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work);
        self.init_both(candidate, oracle, weights)?;
        let draws = Draw::all(shapes.inputs.len(), self.seeds.draw(), InputKind::Declared);
        let limits = Limits::against_reference(&self.spec.tolerance, seen.reference_error);
        if !call_reference(self.memory, &mut oracle.reference, &draws)? {
            return Ok(());
        }
        let pair = (&mut *candidate, &oracle.reference);
        let (found, _) = self.beside_reference(shapes, pair, &draws, &limits, Program::call_in_order)?;
        let passed = limits.pass(&found);
        self.push(TestCase::InStreamOrder, shapes, passed, found, seen.reference_error);
        if passed {
            return Ok(());
        }
        // A program that is wrong for these inputs in any case is not late.
        let (found, _) =
            self.beside_reference(shapes, (candidate, &oracle.reference), &draws, &limits, Program::call_once)?;
        if limits.pass(&found) {
            let message = "the results are complete after the work of the call's stream: the program computes on a stream, or in a \
                           kernel, that the call's stream does not wait for";
            note(&mut self.report.findings, violation("output_late", message.to_owned()));
        }
        Ok(())
    }

    fn init_both(&self, candidate: &mut Program<M>, oracle: &mut Oracle<M>, weights: &Material) -> Result<(), Stop> {
        oracle.reference.init(self.memory, weights.given()).map_err(OracleError::from)?;
        Ok(candidate.init(self.memory, weights.given())?)
    }

    /// Calls the candidate, and compares its outputs with those that the reference has for the same inputs. Returns the comparison,
    /// and the fingerprint of the outputs.
    fn beside_reference(
        &mut self,
        shapes: &ConcreteShapes,
        (candidate, reference): (&mut Program<M>, &Program<M>),
        draws: &[Draw],
        limits: &Limits,
        call: impl FnOnce(&mut Program<M>) -> Result<(), ProgramError>,
    ) -> Result<(Comparison, u64), Stop> {
        self.call_by(candidate, Given::Drawn(draws), call)?;
        let (outputs, expected) = (candidate.outputs(0), reference.outputs(0));
        let found = compare_outputs(self.memory, &outputs, &expected, &shapes.outputs, &limits.tolerance)?;
        let print = fingerprint(self.memory, &outputs)?;
        drop(outputs);
        candidate.process.thaw()?;
        Ok((found, print))
    }

    /// Which of so many tensors are changed one at a time, in a secret order.
    pub(super) fn chosen(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, self.seeds.below(place + 1));
        }
        numbers.truncate(MAX_CHANGED_TENSORS);
        numbers
    }

    /// Changes single inputs, and compares with the reference.
    pub(super) fn changed_inputs(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        (weights, inputs): (&Material, &Material),
        seen: &Seen,
    ) -> Result<(), Stop> {
        if shapes.inputs.len() < 2 {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work);
        let limits = Limits::against_reference(&self.spec.tolerance, seen.reference_error);
        self.init_both(candidate, oracle, weights)?;
        for number in self.chosen(shapes.inputs.len()) {
            let mut draws = inputs.draws.clone();
            draws[number] = Draw::declared(self.seeds.draw());
            if !call_reference(self.memory, &mut oracle.reference, &draws)? {
                continue;
            }
            let pair = (&mut *candidate, &oracle.reference);
            let (found, print) = self.beside_reference(shapes, pair, &draws, &limits, Program::call_once)?;
            let (same, passed) = (seen.first == Some(print), limits.pass(&found));
            self.push(TestCase::ChangedInput(number), shapes, passed, found, seen.reference_error);
            if same && !passed {
                let message =
                    format!("the result does not depend on the input `{}`, as it has to", shapes.inputs[number].name);
                note(&mut self.report.findings, violation("ignores_input", message));
            }
        }
        Ok(())
    }

    /// Scales the weights of these numbers, one at a time, until they matter, and compares with the reference.
    pub(super) fn scaled_weights(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        (weights, inputs): (&Material, &Material),
        numbers: &[usize],
        seen: &mut Seen,
    ) -> Result<(), Stop> {
        if numbers.is_empty() {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work);
        let memory = self.memory;
        let reference = &mut oracle.reference;
        reference.init(memory, weights.given()).map_err(OracleError::from)?;
        if !call_reference(memory, reference, &inputs.draws)? {
            return Ok(());
        }
        let usual = reference.keep_outputs(memory, 0).map_err(OracleError::from)?;
        for &number in numbers {
            let Some(draws) =
                self.scale_that_matters(shapes, reference, (&weights.draws, &inputs.draws), &usual, number)?
            else {
                continue;
            };
            candidate.init(memory, Given::Drawn(&draws))?;
            self.call(candidate, inputs.given())?;
            let (outputs, expected) = (candidate.outputs(0), reference.outputs(0));
            let found = compare_outputs(memory, &outputs, &expected, &shapes.outputs, &self.spec.tolerance)?;
            let usual: Vec<Operand<'_, M>> = usual.iter().map(Operand::Copied).collect();
            let like_usual = compare_outputs(memory, &outputs, &usual, &shapes.outputs, &self.spec.tolerance)?;
            seen.previous = Some(fingerprint(memory, &outputs)?);
            drop((outputs, expected));
            candidate.process.thaw()?;
            let passed = found.largest_error <= PASSES_WHEN_SCALED;
            let ignored = !passed && like_usual.largest_error <= PASSES_WHEN_SCALED;
            self.push(TestCase::ScaledWeight(number), shapes, passed, found, 0.0);
            if ignored {
                let name = &shapes.params[number].name;
                let message = format!("the result does not depend on the weights `{name}`, as it has to");
                note(&mut self.report.findings, violation("ignores_parameter", message));
            }
            if !passed {
                return Err(Stop::Wrong);
            }
        }
        Ok(())
    }

    /// Returns weights of which the one of this number matters, which the reference was called with last; nothing where it
    /// never does.
    fn scale_that_matters(
        &mut self,
        shapes: &ConcreteShapes,
        reference: &mut Program<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        usual: &[M::Copied],
        number: usize,
    ) -> Result<Option<Vec<Draw>>, Stop> {
        let (memory, seed) = (self.memory, self.seeds.draw());
        for scale in SCALES {
            let mut draws = weights.to_vec();
            draws[number] = Draw { seed, kind: InputKind::Declared, scale };
            reference.init(memory, Given::Drawn(&draws)).map_err(OracleError::from)?;
            if !call_reference(memory, reference, inputs)? {
                return Ok(None);
            }
            let places = reference.layout().call(0).outputs.clone();
            let outputs = reference.outputs(0);
            for ((output, usual), place) in outputs.iter().zip(usual).zip(&places) {
                let pair = (*output, Operand::Copied(usual));
                if memory.differ(pair, place, &self.spec.tolerance, MATTERS)? {
                    return Ok(Some(draws));
                }
            }
            if shapes.params[number].dtype == nightshift_protocol::task::DType::I32 {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// Calls a reference. Returns whether its outputs are finite.
fn call_reference<M: Memory>(memory: &M, reference: &mut Program<M>, inputs: &[Draw]) -> Result<bool, OracleError> {
    reference.renew_poison(memory)?;
    reference.prepare(memory, 0, Given::Drawn(inputs))?;
    memory.null_operation()?;
    reference.call(1)?;
    Ok(all_finite(memory, &reference.outputs(0))?)
}
