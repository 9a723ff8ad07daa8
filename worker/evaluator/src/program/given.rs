//! What the tensors of a program hold.

use nightshift_protocol::task::ConcreteTensor;

use super::ProgramError;
use crate::draw::Draw;
use crate::layout::Placed;
use crate::memory::Memory;
use crate::tensor::HostTensor;

/// What the evaluator gives a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given<'a> {
    /// Values that are drawn where the program computes.
    Drawn(&'a [Draw]),
    /// Values of the host.
    Written(&'a [HostTensor]),
}

/// What was put in place.
#[derive(Debug, Clone)]
pub(super) enum Contents {
    Drawn(Vec<Draw>),
    Written(Vec<HostTensor>),
}

/// Puts tensors in place.
pub(super) fn give<M: Memory>(
    memory: &M,
    shared: &mut M::Shared,
    places: &[Placed],
    tensors: &[ConcreteTensor],
    given: Given<'_>,
) -> Result<Contents, ProgramError> {
    match given {
        Given::Drawn(draws) => {
            for ((place, tensor), draw) in places.iter().zip(tensors).zip(draws) {
                memory.draw(shared, place, tensor, *draw)?;
            }
            Ok(Contents::Drawn(draws.to_vec()))
        }
        Given::Written(values) => {
            for (place, values) in places.iter().zip(values) {
                memory.write(shared, place, values)?;
            }
            Ok(Contents::Written(values.to_vec()))
        }
    }
}
