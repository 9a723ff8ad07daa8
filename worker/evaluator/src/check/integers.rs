//! Outputs of integers, such as indices and classes: each element is equal or wrong. Some may be wrong, as the largest of two values
//! that are nearly the same is another one after rounding.

use nightshift_protocol::task::{ConcreteTensor, DType, Tolerance};

use crate::compare::{OutputErrors, TensorComparison};
use crate::memory::{Memory, MemoryError, Operand};

/// A difference of one is so many tolerances that it passes nowhere.
const TOLERANCE: Tolerance = Tolerance { atol: 0.02, rtol: 0.0, reference_error_factor: 1.0 };

/// Of so many elements one may be wrong in few calls.
const MANY: u64 = 32;

/// Rounding that happened to change no element may change so many next time.
const UNSEEN: f64 = 3.0;

/// The largest share that these may be.
pub(super) const MAX_UNSEEN_SHARE: f64 = 0.125;

/// Returns the largest share of wrong elements in an output of integers.
pub(super) fn wrong_share<M: Memory>(
    memory: &M,
    outputs: &[Operand<'_, M>],
    expected: &[Operand<'_, M>],
    tensors: &[ConcreteTensor],
) -> Result<f64, MemoryError> {
    let mut largest = 0.0_f64;
    for ((output, expected), tensor) in outputs.iter().zip(expected).zip(tensors) {
        if tensor.dtype == DType::I32 {
            let found = OutputErrors::of(&memory.compare(*output, *expected, &TOLERANCE)?);
            largest = largest.max(found.wrong_share());
        }
    }
    Ok(largest)
}

/// Returns the share of elements that rounding may change although it changed none in one call.
pub(super) fn unseen_share(tensors: &[ConcreteTensor]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    let unseen = |tensor: &ConcreteTensor| (UNSEEN / tensor.elements().max(1) as f64).min(MAX_UNSEEN_SHARE);
    tensors.iter().filter(|tensor| tensor.dtype == DType::I32).map(unseen).fold(0.0, f64::max)
}

/// Compares an output. If no larger share of it is wrong than may be, it has no error.
pub(super) fn compare<'m, M: Memory + 'm>(
    memory: &M,
    output: Operand<'m, M>,
    expected: Operand<'m, M>,
    allowed_share: f64,
) -> Result<TensorComparison, MemoryError> {
    let found = memory.compare(output, expected, &TOLERANCE)?;
    let errors = OutputErrors::of(&found);
    let is_usual = errors.wrong_share() <= allowed_share;
    let is_excused = !is_usual && errors.wrong_elements == 1 && errors.elements >= MANY;
    let passes = is_usual || is_excused;
    Ok(if passes {
        TensorComparison { histogram: found.histogram, is_excused, ..TensorComparison::default() }
    } else {
        found
    })
}
