//! When outputs count as right.

use nightshift_protocol::task::{ConcreteTensor, Tolerance};

use crate::compare::Comparison;
use crate::memory::{Memory, MemoryError, Operand};

/// An error of the reference below this counts as this: a lucky reference may not tighten the limit for everything else.
pub(crate) const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// A program may be so many times as far from the truth as the reference is, whatever the tolerance says: sums that cancel leave
/// little of the digits that both had.
const ROOM_BESIDE_REFERENCE: f64 = 4.0;

/// The relative part of a tolerance is widened up to this, and no further.
const MAX_WIDENED_RTOL: f64 = 0.01;

/// Other inputs may be a little harder than those of the check.
const SLACK: f64 = 2.0;

/// How far outputs may be from what is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// The tolerance, widened where the reference itself comes close to it or misses it.
    pub(crate) tolerance: Tolerance,
    /// How much it was widened.
    pub(crate) widened: f64,
    /// The largest normalized error that passes.
    pub(crate) allowed: f64,
}

impl Limits {
    /// Returns the limits for outputs that are compared with the truth, given the reference's own normalized error.
    pub(crate) fn against_truth(tolerance: &Tolerance, reference_error: f64) -> Self {
        let widened = (reference_error * ROOM_BESIDE_REFERENCE).max(1.0);
        // The reference's error is the largest near zero, where sums cancel. It is a distance, and no share of large values.
        let rtol = (tolerance.rtol * widened).min(tolerance.rtol.max(MAX_WIDENED_RTOL));
        let tolerance = Tolerance { atol: tolerance.atol * widened, rtol, ..*tolerance };
        let allowed = allowed_error(reference_error / widened, tolerance.reference_error_factor);
        Self { tolerance, widened, allowed }
    }

    /// Returns the limits for outputs that are compared with the reference's, which has an error of its own.
    pub(crate) fn against_reference(tolerance: &Tolerance, reference_error: f64) -> Self {
        let truth = Self::against_truth(tolerance, reference_error);
        Self { allowed: (truth.allowed + reference_error / truth.widened) * SLACK, ..truth }
    }

    /// Whether a comparison under this tolerance passes.
    pub(crate) fn pass(&self, found: &Comparison) -> bool {
        found.largest_error <= self.allowed
    }
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
    tolerance: &Tolerance,
) -> Result<Comparison, MemoryError> {
    let mut comparison = Comparison::default();
    for ((output, expected), tensor) in outputs.iter().zip(expected).zip(tensors) {
        comparison.add(tensor, &memory.compare(*output, *expected, tolerance)?);
    }
    Ok(comparison)
}

/// Whether all outputs are finite.
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
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-2, reference_error_factor: 64.0 };

    fn allowed(reference_error: f64) -> f64 {
        Limits::against_truth(&TOLERANCE, reference_error).allowed
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn the_reference_s_own_error_limits_that_of_a_program() {
        assert!(close(allowed(0.0), 1.0), "an exact reference leaves it to the tolerance");
        assert!(close(allowed(1e-9), 64.0 * SMALLEST_REFERENCE_ERROR), "luck does not tighten the limit");
        assert!(close(allowed(0.01), 0.64));
        assert!(close(allowed(0.2), 1.0), "never beyond the tolerance");
    }

    #[test]
    fn a_reference_that_misses_the_tolerance_widens_it() {
        let limits = Limits::against_truth(&TOLERANCE, 3.0);
        assert!(close(limits.widened, 12.0) && close(limits.tolerance.atol, 0.012) && close(limits.allowed, 1.0));
        assert!(close(limits.tolerance.rtol, 0.01), "no program may be 12 % off: {limits:?}");
        let fine = Tolerance { rtol: 1e-4, ..TOLERANCE };
        assert!(close(Limits::against_truth(&fine, 3.0).tolerance.rtol, 0.0012));
        assert!(close(Limits::against_truth(&fine, 300.0).tolerance.rtol, 0.01));
        assert!(close(Limits::against_truth(&TOLERANCE, 0.1).widened, 1.0));
    }

    #[test]
    fn outputs_next_to_the_reference_s_may_be_off_by_both_errors() {
        let limits = Limits::against_reference(&TOLERANCE, 0.01);
        assert!(close(limits.allowed, 2.0 * (0.64 + 0.01)));
    }
}
