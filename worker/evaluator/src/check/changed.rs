//! Cases that change a single tensor, all of it or a few elements: a program whose outputs do not follow leaves that tensor out, or
//! remembers results and looks at a part of its inputs only.

use std::time::Duration;

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, Distribution};

use super::beside_reference::call_reference;
use super::cases::Check;
use super::judge::{Limits, PASSES_WHEN_SCALED, ReferenceError, compare_outputs, fingerprint, passes_when_scaled};
use super::oracle::rounding_error;
use super::oracle::{Oracle, OracleError};
use super::test_case::{Change, ShapeHistory, Stop, TestCase};
use crate::breach::{note, violation};
use crate::compare::Comparison;
use crate::draw::{Draw, Few};
use crate::lock::DeviceMode;
use crate::memory::{Memory, MemoryError, Operand};
use crate::program::Program;

/// Maximum number of tensors of a kind that are changed one at a time; of more, these many are chosen at random.
const MAX_CHANGED_TENSORS: usize = 16;

/// Changes of a kind of tensors that are made whatever time it takes, and the time that is taken for more.
const FEWEST_CHANGES: usize = 6;
const CHANGING_TIME: Duration = Duration::from_secs(1);

/// Factors by which what is changed is scaled, until the reference's outputs change by [`MATTERS`] tolerances.
const SCALES: [f32; 4] = [1.0, 8.0, 64.0, 512.0];

/// A change matters when the outputs change by so many tolerances: more than [`PASSES_WHEN_SCALED`], so that a program that ignores it is
/// found.
const MATTERS: f64 = 32.0;

/// Elements that are changed together, about. They are so few that a program which looks at samples of a tensor misses them.
const CHANGED_ELEMENTS: u64 = 3;

/// Most times that a tensor is changed: what is missed once is found next time.
const MAX_ROUNDS: usize = 4;

/// One in this many elements of a small tensor is changed.
const CHANGED_ONE_IN: u64 = 8;

/// Which tensor is changed.
#[derive(Debug, Clone, Copy)]
enum Changed {
    Input(usize),
    Weight(usize, Change),
}

impl Changed {
    fn tensor(self, shapes: &ConcreteShapes) -> &ConcreteTensor {
        match self {
            Self::Input(number) => &shapes.inputs[number],
            Self::Weight(number, _) => &shapes.params[number],
        }
    }

    /// The factors by which the tensor is scaled, one after the other until that matters. Labels and indices are not scaled.
    fn scales(self, shapes: &ConcreteShapes) -> impl Iterator<Item = f32> + use<> {
        let tensor = self.tensor(shapes);
        let is_fixed = tensor.dtype == DType::I32 || matches!(tensor.distribution, Distribution::Steps { .. });
        SCALES.into_iter().take(if is_fixed { 1 } else { SCALES.len() })
    }
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    passed: bool,
    /// True where a program that ignores the change would have failed.
    counts: bool,
    /// Fingerprint of the outputs.
    print: u64,
}

/// The numbers of so many tensors, several times over where they are few, each with its position.
fn rounds(numbers: &[usize], most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = (MAX_CHANGED_TENSORS / numbers.len().max(1)).clamp(1, most);
    numbers.iter().copied().cycle().take(numbers.len() * count).enumerate()
}

/// Returns whether no more changes are made: where calls take long, the time for which the reference has run ends it. The candidate's
/// time ends nothing: it could wait in its calls to be asked less.
fn is_over<M: Memory>(position: usize, reference: &Program<M>, began: Duration) -> bool {
    position >= FEWEST_CHANGES && reference.process.ran_for().saturating_sub(began) >= CHANGING_TIME
}

/// The draw of a tensor that is changed.
fn changed(tensor: &ConcreteTensor, usual: Draw, change: Change, seed: u64, scale: f32) -> Draw {
    let too_small = tensor.elements() < CHANGED_ONE_IN * CHANGED_ELEMENTS;
    match if too_small { Change::All } else { change } {
        Change::All => Draw { scale, ..Draw::declared(seed) },
        Change::Few => {
            let one_in = (tensor.elements() / CHANGED_ELEMENTS).max(CHANGED_ONE_IN);
            usual.with_few(Few { seed, one_in, scale })
        }
    }
}

impl<M: Memory> Check<'_, M> {
    /// Which of so many weights are changed one at a time, in a secret order: those of which no change mattered so far.
    pub(super) fn chosen_weights(&mut self, count: usize) -> Vec<usize> {
        let numbers = (0..count).filter(|number| !self.mattered.weights.contains(number)).collect();
        self.chosen(numbers)
    }

    /// The same of inputs.
    fn chosen_inputs(&mut self, count: usize) -> Vec<usize> {
        let numbers = (0..count).filter(|number| !self.mattered.inputs.contains(number)).collect();
        self.chosen(numbers)
    }

    fn chosen(&mut self, mut numbers: Vec<usize>) -> Vec<usize> {
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, self.seeds.below(place + 1));
        }
        numbers.truncate(MAX_CHANGED_TENSORS);
        numbers
    }

    /// Changes a few elements of single inputs after a call with the usual ones, and compares with the reference.
    pub(super) fn changed_inputs(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        seen: &ShapeHistory,
    ) -> Result<(), Stop> {
        let numbers = self.chosen_inputs(shapes.inputs.len());
        if numbers.is_empty() {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work)?;
        let limits = Limits::against_reference(&self.spec.effective_tolerance(), seen.reference_error);
        self.init_both(candidate, oracle, weights)?;
        let Some(usual) = self.usual_outputs(&mut oracle.reference, inputs)? else { return Ok(()) };
        let began = oracle.reference.process.ran_for();
        for (position, number) in rounds(&numbers, MAX_ROUNDS) {
            if is_over(position, &oracle.reference, began) {
                break;
            }
            let what = Changed::Input(number);
            for scale in what.scales(shapes) {
                let (reference, limits_of) = (&mut oracle.reference, (&usual[..], &limits));
                let Some(draws) =
                    self.change_that_matters(shapes, reference, (weights, inputs), limits_of, (what, scale))?
                else {
                    continue;
                };
                self.call(candidate, inputs)?;
                candidate.process.thaw()?;
                let (pair, given) = ((&mut *candidate, &mut *oracle), (weights, &draws[..]));
                let outcome =
                    self.compare_changed(shapes, pair, given, &usual, (&limits, seen.reference_error), what)?;
                if !outcome.passed {
                    return Err(Stop::Wrong);
                }
                if outcome.counts {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Changes the weights of these numbers, one at a time, so much that it matters, and compares with the reference.
    pub(super) fn changed_weights(
        &mut self,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        oracle: &mut Oracle<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        (numbers, change): (&[usize], Change),
        seen: &mut ShapeHistory,
    ) -> Result<(), Stop> {
        if numbers.is_empty() {
            return Ok(());
        }
        let _guard = self.context.lock(DeviceMode::Work)?;
        let tolerance = self.spec.effective_tolerance();
        oracle.reference.init(self.memory, weights).map_err(OracleError::from)?;
        let Some(usual) = self.usual_outputs(&mut oracle.reference, inputs)? else { return Ok(()) };
        if let Some(bits) = self.spec.precision.dropped_bits() {
            let expected: Vec<Operand<'_, M>> = usual.iter().map(Operand::Copied).collect();
            let (reference, draws) = (&mut oracle.reference, (weights, inputs));
            let error = rounding_error(self.memory, reference, bits, shapes, draws, &expected, &tolerance)
                .map_err(OracleError::from)?;
            seen.reference_error = seen.reference_error.max(error);
        }
        let limits = Limits::against_reference(&tolerance, seen.reference_error);
        let most = if change == Change::All { 1 } else { MAX_ROUNDS };
        let began = oracle.reference.process.ran_for();
        for (position, number) in rounds(numbers, most) {
            if is_over(position, &oracle.reference, began) {
                break;
            }
            let what = Changed::Weight(number, change);
            for scale in what.scales(shapes) {
                let (reference, limits_of) = (&mut oracle.reference, (&usual[..], &limits));
                let Some(draws) =
                    self.change_that_matters(shapes, reference, (weights, inputs), limits_of, (what, scale))?
                else {
                    continue;
                };
                candidate.init(self.memory, &draws)?;
                let (pair, given) = ((&mut *candidate, &mut *oracle), (&draws[..], inputs));
                let outcome =
                    self.compare_changed(shapes, pair, given, &usual, (&limits, seen.reference_error), what)?;
                seen.previous = Some(outcome.print);
                if !outcome.passed {
                    return Err(Stop::Wrong);
                }
                if outcome.counts {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the reference's outputs hardly change where zeros become values that are nearly zero. Else equal values decide, such as
    /// which of several zeros is the largest, and programs may decide otherwise.
    pub(super) fn is_continuous(
        &mut self,
        oracle: &mut Oracle<M>,
        weights: &[Draw],
        (zero, nearly): (&[Draw], &[Draw]),
    ) -> Result<bool, Stop> {
        let _guard = self.context.lock(DeviceMode::Work)?;
        let limits = Limits::against_reference(&self.spec.effective_tolerance(), ReferenceError::default());
        oracle.reference.init(self.memory, weights).map_err(OracleError::from)?;
        let Some(outputs) = self.usual_outputs(&mut oracle.reference, zero)? else { return Ok(false) };
        if !call_reference(self.memory, &mut oracle.reference, nearly)? {
            return Ok(false);
        }
        Ok(!differ(self.memory, &oracle.reference, &outputs, &limits, 1.0)?)
    }

    /// The reference's outputs to these inputs, unless they are not finite.
    fn usual_outputs(
        &self,
        reference: &mut Program<M>,
        inputs: &[Draw],
    ) -> Result<Option<Vec<M::Copied>>, OracleError> {
        let is_finite = call_reference(self.memory, reference, inputs)?;
        Ok(if is_finite { Some(reference.keep_outputs(self.memory, 0)?) } else { None })
    }

    /// Calls the candidate on changed inputs or with changed weights, for which the reference was called last. A change does not count
    /// where the reference is so imprecise that a program which ignores it passes, too.
    fn compare_changed(
        &mut self,
        shapes: &ConcreteShapes,
        (candidate, oracle): (&mut Program<M>, &mut Oracle<M>),
        (weights, inputs): (&[Draw], &[Draw]),
        usual: &[M::Copied],
        (limits, error): (&Limits, ReferenceError),
        what: Changed,
    ) -> Result<Outcome, Stop> {
        let memory = self.memory;
        let usual: Vec<Operand<'_, M>> = usual.iter().map(Operand::Copied).collect();
        self.call(candidate, inputs)?;
        let (outputs, expected) = (candidate.outputs(0), oracle.reference.outputs(0));
        let print = fingerprint(memory, &outputs)?;
        let mut found = compare_outputs(memory, &outputs, &expected, &shapes.outputs, limits)?;
        drop(expected);
        let (mut passed, mut counts) = (found.largest_error <= PASSES_WHEN_SCALED, true);
        if !passed {
            self.blame_reference(&mut oracle.reference, shapes, inputs)?;
            if let Some((beside_truth, of_reference)) =
                self.beside_truth(shapes, &outputs, oracle, (weights, inputs), limits)?
            {
                let allowed = passes_when_scaled(of_reference);
                // Kernels that the program left on the device may have completed them meanwhile.
                passed = beside_truth.largest_error <= allowed && fingerprint(memory, &outputs)? == print;
                found = beside_truth;
                let truth = oracle.truth_outputs();
                let ignored = compare_outputs(memory, &usual, &truth, &shapes.outputs, limits)?;
                // The usual outputs of a program may be off, too.
                counts = !passed || ignored.largest_error > allowed + PASSES_WHEN_SCALED;
            }
        }
        let like_usual = compare_outputs(memory, &outputs, &usual, &shapes.outputs, limits)?;
        drop(outputs);
        candidate.process.thaw()?;
        let outcome = Outcome { passed, counts, print };
        if !counts {
            return Ok(outcome);
        }
        let (mattered, number) = match what {
            Changed::Input(number) => (&mut self.mattered.inputs, number),
            Changed::Weight(number, _) => (&mut self.mattered.weights, number),
        };
        if !mattered.contains(&number) {
            mattered.push(number);
        }
        let ignored = !passed && like_usual.largest_error <= PASSES_WHEN_SCALED;
        let case = match what {
            Changed::Input(number) => TestCase::ChangedInput(number),
            Changed::Weight(number, Change::Few) => TestCase::ChangedWeight(number),
            Changed::Weight(number, Change::All) => TestCase::ScaledWeight(number),
        };
        self.push(case, shapes, passed, found, (error.normalized, None));
        if ignored {
            let (code, kind) = match what {
                Changed::Input(_) => ("ignores_input", "input"),
                Changed::Weight(..) => ("ignores_parameter", "weights"),
            };
            let message = format!(
                "the result does not follow a change of the {kind} `{}`, as it has to: it leaves them out, or keeps earlier results",
                what.tensor(shapes).name
            );
            note(&mut self.report.findings, violation(code, message));
        }
        Ok(outcome)
    }

    /// Compares outputs with the truth for these weights and inputs. Returns the comparison, and the reference's largest error in the same
    /// tolerances; nothing where their outputs are not finite.
    fn beside_truth(
        &self,
        shapes: &ConcreteShapes,
        outputs: &[Operand<'_, M>],
        oracle: &mut Oracle<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        limits: &Limits,
    ) -> Result<Option<(Comparison, f64)>, Stop> {
        let memory = self.memory;
        oracle.init(memory, weights)?;
        let tolerance = self.spec.effective_tolerance();
        let Some(answer) = oracle.ask(memory, shapes, inputs, &tolerance, false)? else {
            return Ok(None);
        };
        let (truth, limits) = (oracle.truth_outputs(), limits.with_integers_of(answer.reference_error));
        let found = compare_outputs(memory, outputs, &truth, &shapes.outputs, &limits)?;
        let own = compare_outputs(memory, &oracle.reference.outputs(0), &truth, &shapes.outputs, &limits)?;
        // Rounding that the task's policy allows counts as the reference's.
        let of_reference = own.largest_error.max(answer.reference_error.normalized / limits.widened);
        Ok(Some((found, of_reference)))
    }

    /// Returns inputs or weights of which a change matters, which the reference was called with last; nothing where it does not at
    /// this scale.
    fn change_that_matters(
        &mut self,
        shapes: &ConcreteShapes,
        reference: &mut Program<M>,
        (weights, inputs): (&[Draw], &[Draw]),
        (usual, limits): (&[M::Copied], &Limits),
        (what, scale): (Changed, f32),
    ) -> Result<Option<Vec<Draw>>, Stop> {
        let (memory, tensor, seed) = (self.memory, what.tensor(shapes), self.seeds.draw());
        let draws = match what {
            Changed::Input(number) => {
                let mut draws = inputs.to_vec();
                draws[number] = changed(tensor, draws[number], Change::Few, seed, scale);
                draws
            }
            Changed::Weight(number, change) => {
                let mut draws = weights.to_vec();
                draws[number] = changed(tensor, draws[number], change, seed, scale);
                reference.init(memory, &draws).map_err(OracleError::from)?;
                draws
            }
        };
        let inputs = if matches!(what, Changed::Input(_)) { &draws[..] } else { inputs };
        let matters = call_reference(memory, reference, inputs)? && differ(memory, reference, usual, limits, MATTERS)?;
        Ok(matters.then_some(draws))
    }
}

/// Returns whether a reference's last outputs differ from earlier ones by so many tolerances.
fn differ<M: Memory>(
    memory: &M,
    reference: &Program<M>,
    usual: &[M::Copied],
    limits: &Limits,
    tolerances: f64,
) -> Result<bool, MemoryError> {
    let outputs = reference.outputs(0);
    for ((output, usual), place) in outputs.iter().zip(usual).zip(&reference.layout().call(0).outputs) {
        if memory.differ((*output, Operand::Copied(usual)), place, &limits.tolerance, tolerances)? {
            return Ok(true);
        }
    }
    Ok(false)
}
