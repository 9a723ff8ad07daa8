//! Results against the truth, element by element, with nothing forgiven: what is not finite is wrong.

mod block;

use std::ops::Range;

use nightshift_protocol::task::{ConcreteTensor, DType, Tolerance};
use nightshift_protocol::verdict::{ERROR_HISTOGRAM_BOUNDS, WorstElement};

use self::block::{count_above, count_at_least, largest_of, turn_into_errors};
use crate::inputs::TensorData;
use crate::parts::in_parts;

/// Counts of elements by normalized error, one more than the bounds.
pub type Histogram = [u64; ERROR_HISTOGRAM_BOUNDS.len() + 1];

/// What a comparison found.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// All elements.
    pub elements: u64,
    /// Elements outside the tolerance, or not finite.
    pub wrong_elements: u64,
    /// Largest normalized error; infinite when something is not finite.
    pub largest_error: f64,
    /// Where it is.
    pub worst: Option<WorstElement>,
    /// Elements by normalized error.
    pub histogram: Histogram,
}

/// Compares all outputs of a call. Tensors of another number or length than the shapes say count as wrong throughout.
#[must_use]
pub fn compare(
    outputs: &[TensorData],
    truth: &[TensorData],
    shapes: &[ConcreteTensor],
    tolerance: &Tolerance,
) -> Comparison {
    let mut found =
        Comparison { elements: 0, wrong_elements: 0, largest_error: 0.0, worst: None, histogram: Histogram::default() };
    let mut worst: Option<(&ConcreteTensor, usize, f64, f64)> = None;
    for (position, shape) in shapes.iter().enumerate() {
        found.elements += shape.elements();
        let (Some(output), Some(truth)) = (outputs.get(position), truth.get(position)) else {
            found.wrong_elements += shape.elements();
            found.largest_error = f64::INFINITY;
            continue;
        };
        let missing = shape.elements().saturating_sub(count(output.len().min(truth.len())));
        if missing > 0 {
            found.wrong_elements += missing;
            found.largest_error = f64::INFINITY;
        }
        for part in compare_parts(output, truth, tolerance) {
            for (total, count) in found.histogram.iter_mut().zip(part.histogram) {
                *total += count;
            }
            found.wrong_elements += part.wrong_elements;
            let Some((index, error, candidate, truth)) = part.worst else { continue };
            if worst.is_none() || error > found.largest_error {
                found.largest_error = found.largest_error.max(error);
                worst = Some((shape, index, candidate, truth));
            }
        }
    }
    found.worst = worst.map(|(shape, index, candidate, truth)| {
        let error = normalized_error(candidate, truth, tolerance);
        WorstElement {
            tensor: shape.name.clone(),
            index: unravel(index, &shape.shape),
            candidate: candidate.is_finite().then_some(candidate),
            truth,
            normalized_error: error.is_finite().then_some(error),
        }
    });
    found
}

/// What was found in a part of a tensor.
#[derive(Default)]
struct PartFound {
    histogram: Histogram,
    wrong_elements: u64,
    /// The first of those with the largest error: index, error, value and truth.
    worst: Option<(usize, f64, f64, f64)>,
}

/// Compares two tensors, part by part in their order, large ones on several threads.
fn compare_parts(output: &TensorData, truth: &TensorData, tolerance: &Tolerance) -> Vec<PartFound> {
    let length = output.len().min(truth.len());
    in_parts(length, |part| compare_part(output, truth, part, tolerance))
}

/// Elements that are widened at a time: they stay in the first cache.
const AT_A_TIME: usize = 1024;

/// A part, so many elements at a time.
fn blocks(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = part.end;
    part.step_by(AT_A_TIME).map(move |start| start..(start + AT_A_TIME).min(end))
}

/// The largest normalized error alone, as [`compare`] finds it, in a fraction of the time.
#[must_use]
pub fn largest_error(
    outputs: &[TensorData],
    truth: &[TensorData],
    shapes: &[ConcreteTensor],
    tolerance: &Tolerance,
) -> f64 {
    let of_part = |output: &TensorData, truth: &TensorData, part: Range<usize>| {
        let mut errors = [0.0; AT_A_TIME];
        blocks(part)
            .map(|block| largest_of(errors_of(output, truth, block, tolerance, &mut errors)))
            .fold(0.0, f64::max)
    };
    let of_tensor = |(position, shape): (usize, &ConcreteTensor)| {
        let (Some(output), Some(truth)) = (outputs.get(position), truth.get(position)) else { return f64::INFINITY };
        let length = output.len().min(truth.len());
        if count(length) < shape.elements() {
            return f64::INFINITY;
        }
        in_parts(length, |part| of_part(output, truth, part)).into_iter().fold(0.0, f64::max)
    };
    shapes.iter().enumerate().map(of_tensor).fold(0.0, f64::max)
}

fn compare_part(output: &TensorData, truth: &TensorData, part: Range<usize>, tolerance: &Tolerance) -> PartFound {
    let mut found = PartFound::default();
    // Elements whose error is at least the bound of that number. Most blocks of a right program have none beyond some bound.
    let mut at_least = [0_u64; ERROR_HISTOGRAM_BOUNDS.len()];
    let elements = part.len();
    let mut place_of_errors = [0.0; AT_A_TIME];
    for block in blocks(part) {
        let errors = errors_of(output, truth, block.clone(), tolerance, &mut place_of_errors);
        let largest = largest_of(errors);
        for (total, bound) in at_least.iter_mut().zip(ERROR_HISTOGRAM_BOUNDS).take_while(|(_, bound)| *bound <= largest)
        {
            *total += count_at_least(errors, bound);
        }
        if largest > 1.0 {
            found.wrong_elements += count_above(errors, 1.0);
        }
        if found.worst.is_none_or(|(_, before, ..)| largest > before) {
            // Where they are numbers one of them is the largest.
            let place = block.start + errors.iter().position(|error| *error >= largest).unwrap_or(0);
            let value = |tensor: &TensorData| tensor.part_as_f64(place..place + 1)[0];
            found.worst = Some((place, largest, value(output), value(truth)));
        }
    }
    let mut above = count(elements);
    for (slot, at_least) in found.histogram.iter_mut().zip(at_least.into_iter().chain([0])) {
        *slot = above - at_least;
        above = at_least;
    }
    found
}

/// Normalized errors of the elements of a block.
fn errors_of<'a>(
    output: &TensorData,
    truth: &TensorData,
    block: Range<usize>,
    tolerance: &Tolerance,
    errors: &'a mut [f64; AT_A_TIME],
) -> &'a [f64] {
    let errors = &mut errors[..block.len()];
    let truth = truth.part_as_f64(block.clone());
    output.widen_part(block, errors);
    turn_into_errors(errors, &truth, tolerance);
    errors
}

/// Part of the tolerance below which a change of the truth says nothing.
const UNNOTICED: f64 = 1e-3;

/// Steps between neighbouring values of an output by which the truth has to change, so that a precise program changes its
/// result.
const STEPS: f64 = 4.0;

/// Whether two truths differ by so much that a program's results have to differ as well. What algebra cancels is not gone in
/// double precision, but far below that.
#[must_use]
pub fn differ_noticeably(
    left: &[TensorData],
    right: &[TensorData],
    shapes: &[ConcreteTensor],
    tolerance: &Tolerance,
) -> bool {
    let differs = |left: f64, right: f64, step: f64| {
        let allowed = tolerance.atol + tolerance.rtol * right.abs();
        let difference = (left - right).abs();
        let same_kind = left.is_finite() == right.is_finite();
        !same_kind || (difference > UNNOTICED * allowed && difference > STEPS * step * right.abs())
    };
    let in_pair = |left: &TensorData, right: &TensorData, shape: &ConcreteTensor| {
        let step = step_of(shape.dtype);
        let of_block = |block: Range<usize>| {
            let (left, right) = (left.part_as_f64(block.clone()), right.part_as_f64(block));
            left.iter().zip(right.iter()).any(|(left, right)| differs(*left, *right, step))
        };
        let of_part = |part: Range<usize>| blocks(part).any(of_block);
        left.len() != right.len() || in_parts(left.len(), of_part).into_iter().any(|differs| differs)
    };
    left.len() != right.len()
        || left.iter().zip(right).zip(shapes).any(|((left, right), shape)| in_pair(left, right, shape))
}

/// The distance of neighbouring values, relative to them.
fn step_of(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2.0_f64.powi(-10),
        DType::Bf16 => 2.0_f64.powi(-7),
        DType::I32 => 0.0,
    }
}

/// Elements of all outputs that are outside the tolerance, or not finite, and nothing more: quick enough to be asked
/// about every timed call.
#[must_use]
pub fn count_wrong(outputs: &[TensorData], truth: &[TensorData], tolerance: &Tolerance) -> u64 {
    let wrong = |candidate: f64, truth: f64| {
        // Written so that a comparison with what is not a number counts as wrong.
        let within = (candidate - truth).abs() <= tolerance.atol + tolerance.rtol * truth.abs();
        !(within && candidate.is_finite() && truth.is_finite())
    };
    let in_pair = |output: &TensorData, truth: &TensorData| match (output, truth) {
        (TensorData::F32(output), TensorData::F32(truth)) if output.len() == truth.len() => {
            let of_part = |part: Range<usize>| {
                let pairs = output[part.clone()].iter().zip(&truth[part]);
                pairs.filter(|(a, b)| wrong(f64::from(**a), f64::from(**b))).count()
            };
            in_parts(output.len(), of_part).into_iter().sum()
        }
        _ if output.len() == truth.len() => {
            let of_block = |block: Range<usize>| {
                let (output, truth) = (output.part_as_f64(block.clone()), truth.part_as_f64(block));
                output.iter().zip(truth.iter()).filter(|(a, b)| wrong(**a, **b)).count()
            };
            let of_part = |part: Range<usize>| -> usize { blocks(part).map(of_block).sum() };
            in_parts(output.len(), of_part).into_iter().sum()
        }
        _ => truth.len().max(1),
    };
    let missing = outputs.len().abs_diff(truth.len());
    count(outputs.iter().zip(truth).map(|(output, truth)| in_pair(output, truth)).sum::<usize>() + missing)
}

/// `|candidate - truth| / (atol + rtol * |truth|)`; infinite when either is not finite. No case ends it early: so many are done
/// at a time.
#[must_use]
#[inline]
pub fn normalized_error(candidate: f64, truth: f64, tolerance: &Tolerance) -> f64 {
    let (difference, allowed) = ((candidate - truth).abs(), tolerance.atol + tolerance.rtol * truth.abs());
    // Nothing is allowed for a truth of zero without an absolute part: the division gives infinity, as it should. It is always
    // carried out, for several elements at once.
    let quotient = difference / allowed;
    let error = if difference == 0.0 { 0.0 } else { quotient };
    if candidate.is_finite() & truth.is_finite() { error } else { f64::INFINITY }
}

/// Position in a row-major tensor, outermost first.
fn unravel(index: usize, shape: &[u64]) -> Vec<u64> {
    let mut rest = count(index);
    let mut position: Vec<u64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let extent = (*extent).max(1);
            let here = rest % extent;
            rest /= extent;
            here
        })
        .collect();
    position.reverse();
    position
}

fn count(elements: usize) -> u64 {
    u64::try_from(elements).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::Distribution;

    use super::*;
    use crate::parts::PART;

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-2, reference_error_factor: 64.0 };

    fn shape(extents: &[u64]) -> ConcreteTensor {
        ConcreteTensor {
            name: "y".to_owned(),
            dtype: DType::F32,
            shape: extents.to_vec(),
            distribution: Distribution::default(),
        }
    }

    fn one(candidate: f32, truth: f64) -> Comparison {
        compare(&[vec![candidate].into()], &[vec![truth].into()], &[shape(&[1])], &TOLERANCE)
    }

    fn is_zero(error: f64) -> bool {
        error.abs() < f64::MIN_POSITIVE
    }

    #[test]
    fn equal_values_have_no_error() {
        let found = one(2.0, 2.0);
        assert_eq!((found.wrong_elements, found.elements), (0, 1));
        assert_eq!(found.histogram[0], 1);
        assert_eq!(found.worst.and_then(|worst| worst.normalized_error), Some(0.0));
    }

    #[test]
    fn the_tolerance_is_absolute_plus_relative() {
        // Allowed: 0.001 + 0.01 * 10 = 0.101.
        assert_eq!(one(10.1, 10.0).wrong_elements, 0);
        assert_eq!(one(10.11, 10.0).wrong_elements, 1);
        assert_eq!(one(0.0009, 0.0).wrong_elements, 0);
        assert_eq!(one(0.0011, 0.0).wrong_elements, 1);
    }

    #[test]
    fn what_is_not_finite_is_wrong_on_either_side() {
        for (candidate, truth) in [
            (f32::NAN, 1.0),
            (f32::INFINITY, 1.0),
            (f32::NEG_INFINITY, f64::NEG_INFINITY),
            (f32::NAN, f64::NAN),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
        ] {
            let found = one(candidate, truth);
            assert_eq!(found.wrong_elements, 1, "{candidate} against {truth}");
            assert!(found.largest_error.is_infinite());
            assert_eq!(found.histogram[ERROR_HISTOGRAM_BOUNDS.len()], 1);
            assert_eq!(found.worst.and_then(|worst| worst.normalized_error), None);
        }
    }

    #[test]
    fn denormal_and_huge_values_are_values() {
        assert!(is_zero(one(f32::from_bits(1), f64::from(f32::from_bits(1))).largest_error));
        assert_eq!(one(f32::MAX, f64::from(f32::MAX)).wrong_elements, 0);
        assert_eq!(one(f32::MAX, 1.0).wrong_elements, 1);
        assert_eq!(one(1.0, 1e308).wrong_elements, 1);
        let found = one(-f32::MAX, f64::MAX);
        assert_eq!(found.wrong_elements, 1);
    }

    #[test]
    fn without_an_absolute_part_a_truth_of_zero_allows_only_zero() {
        let strict = Tolerance { atol: 0.0, ..TOLERANCE };
        assert!(is_zero(normalized_error(0.0, 0.0, &strict)));
        assert!(is_zero(normalized_error(-0.0, 0.0, &strict)));
        assert!(normalized_error(1e-30, 0.0, &strict).is_infinite());
    }

    #[test]
    fn the_worst_element_is_found_with_its_position() {
        let truth = TensorData::from(vec![1.0_f64; 24]);
        let mut values = vec![1.0_f32; 24];
        values[5] = 1.02;
        values[17] = 3.0;
        let found = compare(&[values.into()], &[truth], &[shape(&[2, 3, 4])], &TOLERANCE);
        assert_eq!(found.wrong_elements, 2);
        let Some(worst) = found.worst else { panic!("there is a worst element") };
        assert_eq!(worst.index, [1, 1, 1]);
        assert_eq!(worst.candidate, Some(3.0));
        assert_eq!(found.histogram.iter().sum::<u64>(), 24);
    }

    #[test]
    fn the_histogram_counts_by_powers_of_ten() {
        let strict = Tolerance { atol: 1.0, rtol: 0.0, ..TOLERANCE };
        let errors = [0.0, 5e-6, 5e-3, 0.5, 1.0, 5.0, 50.0];
        let found = compare(&[errors.to_vec().into()], &[vec![0.0_f64; 7].into()], &[shape(&[7])], &strict);
        assert_eq!(found.histogram, [1, 1, 0, 0, 1, 0, 1, 2, 1]);
        // An error of exactly 1 is within tolerance.
        assert_eq!(found.wrong_elements, 2);
    }

    #[test]
    fn the_quick_count_agrees_with_the_full_comparison() {
        let truth = [TensorData::from(vec![1.0_f32, 10.0, 0.0, f32::NAN, 5.0, f32::INFINITY, -2.0])];
        let output = [TensorData::from(vec![1.0_f32, 10.2, 0.0005, f32::NAN, f32::NAN, f32::INFINITY, 2.0])];
        let full = compare(&output, &truth, &[shape(&[7])], &TOLERANCE);
        assert_eq!(count_wrong(&output, &truth, &TOLERANCE), full.wrong_elements);
        assert_eq!(full.wrong_elements, 5);
        assert_eq!(count_wrong(&[], &truth, &TOLERANCE), 1);
    }

    #[test]
    fn the_largest_error_alone_is_that_of_the_full_comparison() {
        let agree = |outputs: &[TensorData], truth: &[TensorData], elements: u64, tolerance: &Tolerance| {
            let (full, alone) = (
                compare(outputs, truth, &[shape(&[elements])], tolerance).largest_error,
                largest_error(outputs, truth, &[shape(&[elements])], tolerance),
            );
            assert_eq!(full.to_bits(), alone.to_bits(), "{full} and {alone}");
        };
        let strict = Tolerance { atol: 0.0, ..TOLERANCE };
        for (candidate, truth) in [
            (1.0, 1.0),
            (1.5, 1.0),
            (0.0, 0.0),
            (-0.0, 0.0),
            (1e-30, 0.0),
            (f32::NAN, 1.0),
            (1.0, f64::INFINITY),
            (f32::INFINITY, f64::INFINITY),
            (-f32::MAX, f64::MAX),
        ] {
            for tolerance in [&TOLERANCE, &strict] {
                agree(&[vec![candidate].into()], &[vec![truth].into()], 1, tolerance);
            }
        }
        agree(&[], &[vec![0.0_f64; 4].into()], 4, &TOLERANCE);
        agree(&[vec![0.0_f32; 3].into()], &[vec![0.0_f64; 4].into()], 4, &TOLERANCE);
        // Several parts, and a block that is not full.
        let length = 2 * PART + AT_A_TIME + 7;
        for place in [0, AT_A_TIME, PART - 1, PART, length - 1] {
            let mut values = vec![1.0_f32; length];
            values[place] = 1.5;
            agree(&[values.into()], &[vec![1.0_f64; length].into()], count(length), &TOLERANCE);
        }
    }

    #[test]
    fn what_rounding_leaves_of_a_change_is_no_change() {
        let differ = |left: f64, right: f64, dtype| {
            let shape = ConcreteTensor { dtype, ..shape(&[2]) };
            differ_noticeably(&[vec![1.0, left].into()], &[vec![1.0, right].into()], &[shape], &TOLERANCE)
        };
        assert!(!differ(3.0, 3.0 + 1e-15, DType::F32) && !differ(0.0, 1e-9, DType::F32));
        assert!(differ(3.0, 3.001, DType::F32) && differ(0.0, 1e-4, DType::F32));
        // Between two neighbours of 16 bits, and beyond.
        assert!(!differ(1.0, 1.001, DType::F16) && differ(1.0, 1.01, DType::F16));
        assert!(differ(1.0, 2.0, DType::I32) && differ(1.0, f64::NAN, DType::F32));
    }

    #[test]
    fn a_missing_tensor_is_wrong_throughout() {
        let found = compare(&[], &[vec![0.0_f64; 4].into()], &[shape(&[4])], &TOLERANCE);
        assert_eq!((found.wrong_elements, found.elements), (4, 4));
        assert!(found.largest_error.is_infinite());
    }
}
