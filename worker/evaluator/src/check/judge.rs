//! When outputs count as right.

use nightshift_protocol::task::{ConcreteTensor, DType, Tolerance};
use nightshift_protocol::verdict::{ROOM_BESIDE_REFERENCE, WorstElement};

use super::integers;
use crate::compare::{Comparison, OutputErrors, TensorComparison};
use crate::memory::{Memory, MemoryError, Operand};

/// An error of the reference below this counts as this: a lucky reference may not tighten the limit for everything else.
pub(crate) const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// The relative part of a tolerance is widened up to this, and no further.
const MAX_WIDENED_RTOL: f64 = 0.01;

/// Where the reference has wrong elements in an output under the widest tolerance, a program may have so many times as many there, and no
/// more than one in so many.
const MOST_LIKE_REFERENCE: u64 = 4;
const FEW: u64 = 10_000;

/// Where the reference misses a tolerance whose relative part may not be widened further, a program may be so many times as far off.
const ROOM_OVER_CAP: f64 = 2.0;

/// A reference that is so many tolerances away from the truth, at an element that is small itself, says nothing about programs.
const MEANINGLESS_ERROR: f64 = 1_000.0;

/// The largest share of integers that may be wrong, whatever rounding does to the reference.
const MAX_WRONG_INTEGERS: f64 = 0.5;

/// A reference that has a larger share of integers wrong says nothing about programs.
const MEANINGLESS_INTEGERS: f64 = 0.125;

/// The largest relative tolerance. Outputs of zeros are off by twice as much.
const MAX_RTOL: f64 = 0.5;

/// A coarse tolerance is so many times as wide.
const COARSE: f64 = 64.0;

/// Errors in tolerances that pass where values were scaled: large ones cost digits that the tolerance of the task does not know of.
pub(super) const PASSES_WHEN_SCALED: f64 = 8.0;

/// Other inputs may be a little harder than those of the check.
const SLACK: f64 = 2.0;

/// The largest error of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ReferenceError {
    /// In tolerances.
    pub(crate) normalized: f64,
    /// In tolerances after they were widened for it; 0 where none was.
    pub(crate) under_widened: f64,
    /// In tolerances after their relative part was widened beyond its cap; 0 where none was.
    pub(crate) under_widest: f64,
    /// As a share of what the element should be; 0 where that is not known.
    pub(crate) relative: f64,
    /// The share of wrong elements in an output of integers. They have no part in the other errors: a class that changes where two
    /// are nearly the same is no distance.
    pub(crate) wrong_integers: f64,
    /// The share that may be wrong in addition, as one call tells little of integers.
    pub(crate) unseen_integers: f64,
}

impl ReferenceError {
    /// An error that is known in tolerances alone.
    pub(crate) fn of(normalized: f64) -> Self {
        Self { normalized, ..Self::default() }
    }

    /// The larger one of both.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            normalized: self.normalized.max(other.normalized),
            under_widened: self.under_widened.max(other.under_widened),
            under_widest: self.under_widest.max(other.under_widest),
            relative: self.relative.max(other.relative),
            wrong_integers: self.wrong_integers.max(other.wrong_integers),
            unseen_integers: self.unseen_integers.max(other.unseen_integers),
        }
    }

    /// The same after rounding, for outputs of these shapes: what one call tells of integers is little.
    #[must_use]
    pub(crate) fn of_rounding(self, tensors: &[ConcreteTensor]) -> Self {
        Self { unseen_integers: integers::unseen_share(tensors), ..self }
    }

    /// Returns the share of wrong elements that an output of integers may have.
    fn allowed_integers(self, references: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let (most, few) = ((MOST_LIKE_REFERENCE + references) as f64, 1.0 / FEW as f64);
        // What was not seen once may come several times in one of many calls.
        let unseen = (self.unseen_integers * most).min(integers::MAX_UNSEEN_SHARE);
        ((self.wrong_integers * most).max(few) + unseen).min(MAX_WRONG_INTEGERS)
    }

    /// Returns whether a tolerance is widened beyond its cap for this reference.
    pub(crate) fn is_beyond_cap(self) -> bool {
        self.under_widened * ROOM_OVER_CAP > 1.0
    }

    /// Returns whether nothing can be compared with this reference: it is off by more than the largest relative tolerance allows, or its
    /// error is a distance in which small values disappear.
    pub(crate) fn is_meaningless(self, tolerance: &Tolerance) -> bool {
        let is_beyond = self.under_widened * ROOM_OVER_CAP * widened_rtol(tolerance, self) > MAX_RTOL;
        is_beyond
            || self.wrong_integers > MEANINGLESS_INTEGERS
            || (self.normalized > MEANINGLESS_ERROR && self.relative > MAX_RTOL / ROOM_OVER_CAP)
    }

    /// Finds the error of a reference's outputs.
    pub(crate) fn find<M: Memory>(
        memory: &M,
        outputs: &[Operand<'_, M>],
        expected: &[Operand<'_, M>],
        tensors: &[ConcreteTensor],
        tolerance: &Tolerance,
    ) -> Result<Self, MemoryError> {
        let wrong_integers = integers::wrong_share(memory, outputs, expected, tensors)?;
        let compare = |tolerance: &Tolerance| {
            let limits = Limits { integers: 1.0, ..Limits::of(tolerance) };
            compare_outputs(memory, outputs, expected, tensors, &limits)
        };
        let found = compare(tolerance)?;
        let share = |worst: &WorstElement| Some((worst.candidate? - worst.truth).abs() / worst.truth.abs());
        let relative = found.worst.as_ref().and_then(share).unwrap_or(0.0);
        let error = Self { relative, wrong_integers, ..Self::of(found.largest_error.min(f64::MAX)) };
        let limits = Limits::against_truth(tolerance, error);
        if limits.widened <= 1.0 {
            return Ok(error);
        }
        let error = Self { under_widened: compare(&limits.tolerance)?.largest_error.min(f64::MAX), ..error };
        if !error.is_beyond_cap() {
            return Ok(error);
        }
        let widest = Limits::against_truth(tolerance, error).tolerance;
        Ok(Self { under_widest: compare(&widest)?.largest_error.min(f64::MAX), ..error })
    }
}

/// The tolerance of outputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// The tolerance, widened where the reference itself comes close to it or misses it.
    pub(crate) tolerance: Tolerance,
    /// Factor by which it was widened.
    pub(crate) widened: f64,
    /// The reference's own error under that tolerance.
    own: f64,
    /// Whether the relative part was widened beyond its cap.
    is_beyond_cap: bool,
    /// The reference's largest error under that tolerance; 0 where it was not widened beyond its cap.
    worst_of_reference: f64,
    /// The largest normalized error that passes.
    pub(crate) allowed: f64,
    /// The share of elements of an output of integers that may be wrong.
    pub(crate) integers: f64,
}

impl Limits {
    /// Returns the limits beside a reference that is exact.
    pub(crate) fn of(tolerance: &Tolerance) -> Self {
        Self::against_truth(tolerance, ReferenceError::default())
    }

    /// Lets as many integers be wrong as beside a reference with this error, if those are more.
    pub(crate) fn with_integers_of(self, reference: ReferenceError) -> Self {
        Self { integers: self.integers.max(reference.allowed_integers(0)), ..self }
    }

    /// Returns the limits for outputs that are compared with the truth, given the reference's own normalized error.
    pub(crate) fn against_truth(tolerance: &Tolerance, reference: ReferenceError) -> Self {
        let widened = (reference.normalized * ROOM_BESIDE_REFERENCE).max(1.0);
        let rtol = widened_rtol(tolerance, reference);
        // A program that is as precise as a reference which misses even that is not wrong.
        let further = (reference.under_widened * ROOM_OVER_CAP).min(MAX_RTOL / rtol).max(1.0);
        let is_beyond_cap = further > 1.0;
        let tolerance = Tolerance { atol: tolerance.atol * widened, rtol: rtol * further, ..*tolerance };
        let own = if is_beyond_cap { 1.0 / ROOM_OVER_CAP } else { reference.normalized / widened };
        let allowed = allowed_error(own, tolerance.reference_error_factor);
        let (worst_of_reference, integers) = (reference.under_widest, reference.allowed_integers(0));
        Self { tolerance, widened, own, is_beyond_cap, worst_of_reference, allowed, integers }
    }

    /// Returns the limits for outputs that are compared with the reference's, which has an error of its own.
    pub(crate) fn against_reference(tolerance: &Tolerance, reference: ReferenceError) -> Self {
        let truth = Self::against_truth(tolerance, reference);
        // A tolerance that was widened beyond its cap has no more to give: outputs of zeros would pass.
        let slack = if truth.is_beyond_cap { 1.0 } else { SLACK };
        // Where program and reference are wrong in other places, they differ in both.
        Self { allowed: (truth.allowed + truth.own) * slack, integers: reference.allowed_integers(1), ..truth }
    }

    /// The same many times as wide: no rounding explains what is beyond.
    pub(crate) fn coarse(self) -> Self {
        let Tolerance { atol, rtol, .. } = self.tolerance;
        let tolerance = Tolerance { atol: atol * COARSE, rtol: (rtol * COARSE).min(MAX_RTOL), ..self.tolerance };
        Self { tolerance, ..self }
    }

    /// Returns whether a comparison under this tolerance passes.
    fn pass(&self, found: &Comparison) -> bool {
        found.largest_error <= self.allowed
    }

    /// Returns whether outputs pass that are compared with the reference's, where the truth is asked about those that do not. Where the
    /// reference itself may have wrong elements, few of each output may differ, and none by more than both programs may be off there.
    pub(crate) fn pass_beside_reference(&self, outputs: &[OutputErrors]) -> bool {
        let farthest = self.worst_of_reference * (ROOM_BESIDE_REFERENCE + 1.0) * SLACK;
        outputs.iter().all(|output| self.are_near(output) && output.largest_error <= farthest.max(self.allowed))
    }

    /// Returns whether outputs of a timed call pass, for which no truth is asked. How far few elements may be off is not limited: the
    /// error of a sum that cancels grows as the sum comes near zero, and of many calls one comes nearer than all those by which the
    /// reference's error was found.
    pub(crate) fn pass_timed(&self, outputs: &[OutputErrors]) -> bool {
        outputs.iter().all(|output| self.are_near(output) && output.largest_error.is_finite())
    }

    /// Returns whether an output is as near as is allowed, or all but few of its elements where the reference itself may have wrong ones.
    fn are_near(&self, output: &OutputErrors) -> bool {
        output.largest_error <= self.allowed || (self.is_beyond_cap && are_few(output))
    }

    /// Returns whether outputs pass that are compared with the truth. Where the tolerance was widened as far as that goes, the reference
    /// itself may have wrong elements; `of_reference` compares its outputs with the truth.
    pub(crate) fn pass_beside_truth<E>(
        &self,
        found: &Comparison,
        of_reference: impl FnOnce() -> Result<Comparison, E>,
    ) -> Result<bool, E> {
        if found.wrong_elements == 0 && self.pass(found) {
            return Ok(true);
        }
        Ok(self.is_beyond_cap && is_like_reference(found, &of_reference()?))
    }
}

/// Returns whether so few elements of an output are wrong that a program may be right which has them where the reference has some, too.
fn are_few(output: &OutputErrors) -> bool {
    output.wrong_elements.saturating_mul(FEW) <= output.elements
}

/// Returns whether a program has few wrong elements in each output, hardly more than the reference has there for the same inputs, and none
/// that is much farther off.
fn is_like_reference(found: &Comparison, reference: &Comparison) -> bool {
    found.outputs.len() == reference.outputs.len()
        && found.outputs.iter().zip(&reference.outputs).all(|(found, reference)| {
            found.wrong_elements == 0
                || (are_few(found)
                    && found.wrong_elements <= reference.wrong_elements.saturating_mul(MOST_LIKE_REFERENCE)
                    && found.largest_error <= reference.largest_error * ROOM_BESIDE_REFERENCE)
        })
}

/// Returns the largest error in tolerances that passes where values were scaled, given that of the reference for the same values.
pub(super) fn passes_when_scaled(reference_error: f64) -> f64 {
    PASSES_WHEN_SCALED.max(reference_error * ROOM_BESIDE_REFERENCE)
}

/// Returns the relative part of a tolerance that is widened for a reference. The reference's error is the largest near zero, where sums
/// cancel: it is a distance, and no share of large values.
fn widened_rtol(tolerance: &Tolerance, reference: ReferenceError) -> f64 {
    let widened = (reference.normalized * ROOM_BESIDE_REFERENCE).max(1.0);
    (tolerance.rtol * widened).min(tolerance.rtol.max(MAX_WIDENED_RTOL))
}

/// Returns the largest normalized error that passes, given the reference's own. An exact reference says nothing about what single
/// precision can do, so the tolerance alone decides then.
fn allowed_error(reference_error: f64, factor: f64) -> f64 {
    if reference_error <= 0.0 {
        return 1.0;
    }
    (reference_error.max(SMALLEST_REFERENCE_ERROR) * factor).min(1.0)
}

/// Compares all outputs of a call.
pub(crate) fn compare_outputs<M: Memory>(
    memory: &M,
    outputs: &[Operand<'_, M>],
    expected: &[Operand<'_, M>],
    tensors: &[ConcreteTensor],
    limits: &Limits,
) -> Result<Comparison, MemoryError> {
    let mut comparison = Comparison::default();
    for ((output, expected), tensor) in outputs.iter().zip(expected).zip(tensors) {
        comparison.add(tensor, &compare_output(memory, (*output, *expected), tensor.dtype, limits)?);
    }
    Ok(comparison)
}

/// Compares an output.
pub(crate) fn compare_output<'m, M: Memory + 'm>(
    memory: &M,
    (output, expected): (Operand<'m, M>, Operand<'m, M>),
    dtype: DType,
    limits: &Limits,
) -> Result<TensorComparison, MemoryError> {
    if dtype != DType::I32 {
        return memory.compare(output, expected, &limits.tolerance);
    }
    integers::compare(memory, output, expected, limits.integers)
}

/// Returns whether all outputs are finite.
pub(crate) fn all_finite<M: Memory>(memory: &M, outputs: &[Operand<'_, M>]) -> Result<bool, MemoryError> {
    for output in outputs {
        if !memory.is_finite(*output)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a number that follows from all bits of the outputs.
pub(crate) fn fingerprint<M: Memory>(memory: &M, outputs: &[Operand<'_, M>]) -> Result<u64, MemoryError> {
    outputs.iter().try_fold(0_u64, |so_far, output| {
        Ok(so_far.rotate_left(17).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ memory.fingerprint(*output)?)
    })
}

#[cfg(test)]
mod tests;
