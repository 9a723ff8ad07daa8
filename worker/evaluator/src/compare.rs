//! Outputs against expected values, element by element. A value that is not finite is wrong.

mod blocks;

use std::ops::Range;

use nightshift_protocol::task::{ConcreteTensor, Tolerance};
use nightshift_protocol::verdict::{ERROR_HISTOGRAM_BOUNDS, WorstElement};
use rayon::prelude::*;

use self::blocks::{count_above, count_at_least, largest_of, turn_into_errors};
use crate::element::Element;
use crate::tensor::{BLOCK, PART, TensorView};

/// One of so many elements may be far off.
const FEW_FAR_OFF: u64 = 1_000;

/// Counts of elements by normalized error, one more than the bounds.
pub type Histogram = [u64; ERROR_HISTOGRAM_BOUNDS.len() + 1];

/// Part of the tolerance below which a change of the expected values is too small to be required of a program.
pub(crate) const UNNOTICED: f64 = 1e-3;

/// Steps between neighbouring values of an output by which expected values have to change, so that a precise program changes
/// its result.
pub(crate) const STEPS: f64 = 4.0;

/// The result of comparing a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TensorComparison {
    /// Elements outside the tolerance, or not finite.
    pub wrong_elements: u64,
    /// Largest normalized error; infinite when an element is not finite.
    pub largest_error: f64,
    /// First element with that error: index, value and expected value.
    pub worst: Option<(u64, f64, f64)>,
    /// Elements by normalized error.
    pub histogram: Histogram,
    /// True if one of many integers is wrong and the comparison accepts it.
    pub is_excused: bool,
}

/// The errors of one output.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutputErrors {
    /// All elements.
    pub elements: u64,
    /// Elements outside the tolerance, or not finite.
    pub wrong_elements: u64,
    /// Largest normalized error; infinite when an element is not finite.
    pub largest_error: f64,
}

impl OutputErrors {
    /// The share of wrong elements.
    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    pub(crate) fn wrong_share(&self) -> f64 {
        self.wrong_elements as f64 / self.elements.max(1) as f64
    }

    /// Returns whether more elements are wrong than a few that rounding happens to carry over a step or beyond the largest number.
    pub(crate) fn is_far_off(&self) -> bool {
        self.wrong_elements.saturating_mul(FEW_FAR_OFF) > self.elements
    }

    /// Returns the errors that a comparison found.
    pub(crate) fn of(found: &TensorComparison) -> Self {
        let TensorComparison { wrong_elements, largest_error, histogram, .. } = found;
        Self { elements: histogram.iter().sum(), wrong_elements: *wrong_elements, largest_error: *largest_error }
    }
}

/// The result of comparing all outputs of a call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// All elements.
    pub elements: u64,
    /// Elements outside the tolerance, or not finite.
    pub wrong_elements: u64,
    /// Largest normalized error; infinite when an element is not finite.
    pub largest_error: f64,
    /// The worst element, with its index.
    pub worst: Option<WorstElement>,
    /// Elements by normalized error.
    pub histogram: Histogram,
    /// The errors of each output, in the order of outputs.
    pub outputs: Vec<OutputErrors>,
}

impl Comparison {
    /// Adds what was found in one output.
    pub(crate) fn add(&mut self, tensor: &ConcreteTensor, found: &TensorComparison) {
        self.elements += tensor.elements();
        self.wrong_elements += found.wrong_elements;
        self.outputs.push(OutputErrors::of(found));
        for (total, count) in self.histogram.iter_mut().zip(found.histogram) {
            *total += count;
        }
        if self.worst.is_some() && found.largest_error <= self.largest_error {
            return;
        }
        self.largest_error = self.largest_error.max(found.largest_error);
        if let Some((index, value, expected)) = found.worst {
            let error = found.largest_error;
            self.worst = Some(WorstElement {
                tensor: tensor.name.clone(),
                index: unravel(index, &tensor.shape),
                candidate: value.is_finite().then_some(value),
                truth: expected,
                normalized_error: error.is_finite().then_some(error),
            });
        }
    }
}

/// Compares one output with the expected values.
#[must_use]
pub fn compare(output: TensorView<'_>, expected: TensorView<'_>, tolerance: &Tolerance) -> TensorComparison {
    let count = output.elements().min(expected.elements());
    let parts = parts_of(count).into_par_iter().map(|part| compare_part(output, expected, part, tolerance));
    let mut found = parts.reduce(TensorComparison::default, |left, right| merge(&left, &right));
    let missing = as_count(output.elements().max(expected.elements()) - count);
    if missing > 0 {
        found.wrong_elements += missing;
        found.largest_error = f64::INFINITY;
    }
    found
}

fn parts_of(count: usize) -> Vec<Range<usize>> {
    (0..count).step_by(PART).map(|start| start..(start + PART).min(count)).collect()
}

fn merge(left: &TensorComparison, right: &TensorComparison) -> TensorComparison {
    let mut histogram = left.histogram;
    for (total, count) in histogram.iter_mut().zip(right.histogram) {
        *total += count;
    }
    let right_is_worse = right.worst.is_some() && (left.worst.is_none() || right.largest_error > left.largest_error);
    TensorComparison {
        wrong_elements: left.wrong_elements + right.wrong_elements,
        largest_error: left.largest_error.max(right.largest_error),
        worst: if right_is_worse { right.worst } else { left.worst },
        histogram,
        is_excused: false,
    }
}

fn blocks(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = part.end;
    part.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

fn compare_part(
    output: TensorView<'_>,
    expected: TensorView<'_>,
    part: Range<usize>,
    tolerance: &Tolerance,
) -> TensorComparison {
    let mut found = TensorComparison::default();
    // Elements whose error is at least each bound. Most blocks of a right program have none beyond some bound.
    let mut at_least = [0_u64; ERROR_HISTOGRAM_BOUNDS.len()];
    let elements = as_count(part.len());
    let (mut errors, mut truth) = ([0.0; BLOCK], [0.0; BLOCK]);
    for block in blocks(part) {
        let (errors, truth) = (&mut errors[..block.len()], &mut truth[..block.len()]);
        output.element.widen(output.part(block.clone()), errors);
        expected.element.widen(expected.part(block.clone()), truth);
        turn_into_errors(errors, truth, tolerance);
        let largest = largest_of(errors);
        for (total, bound) in at_least.iter_mut().zip(ERROR_HISTOGRAM_BOUNDS).take_while(|(_, bound)| *bound <= largest)
        {
            *total += count_at_least(errors, bound);
        }
        if largest > 1.0 {
            found.wrong_elements += count_above(errors, 1.0);
        }
        if found.worst.is_none() || largest > found.largest_error {
            found.largest_error = largest;
            let index = block.start + errors.iter().position(|error| *error >= largest).unwrap_or(0);
            found.worst = Some((as_count(index), output.value(index), expected.value(index)));
        }
    }
    let mut above = elements;
    for (slot, at_least) in found.histogram.iter_mut().zip(at_least.into_iter().chain([0])) {
        *slot = above - at_least;
        above = at_least;
    }
    found
}

/// Returns whether expected values differ so much that a program's results have to differ, too. A term that cancels algebraically leaves
/// rounding errors in double precision, which lie far below that.
#[must_use]
pub fn differ_noticeably(
    left: TensorView<'_>,
    right: TensorView<'_>,
    output: Element,
    tolerance: &Tolerance,
    share: f64,
) -> bool {
    let step = output.relative_step();
    let differs = |left: f64, right: f64| {
        let allowed = tolerance.atol + tolerance.rtol * right.abs();
        let difference = (left - right).abs();
        left.is_finite() != right.is_finite()
            || (difference > share * allowed && difference > STEPS * step * right.abs())
    };
    let of_part = |part: Range<usize>| {
        blocks(part).any(|block| {
            let (mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK]);
            left.element.widen(left.part(block.clone()), &mut a[..block.len()]);
            right.element.widen(right.part(block.clone()), &mut b[..block.len()]);
            a[..block.len()].iter().zip(&b).any(|(a, b)| differs(*a, *b))
        })
    };
    left.elements() != right.elements() || parts_of(left.elements()).into_par_iter().any(of_part)
}

/// Returns whether every element is finite.
#[must_use]
pub fn is_finite(view: TensorView<'_>) -> bool {
    let of_part = |part: Range<usize>| {
        blocks(part).all(|block| {
            let mut values = [0.0; BLOCK];
            view.element.widen(view.part(block.clone()), &mut values[..block.len()]);
            values[..block.len()].iter().fold(true, |so_far, value| so_far & value.is_finite())
        })
    };
    !view.element.is_float() || parts_of(view.elements()).into_par_iter().all(of_part)
}

/// Counts the elements that still hold a repeated pattern of 4 bytes. Elements of less than 4 bytes count when the part of the
/// pattern that no number has lies there; elements of one byte never count.
#[must_use]
pub fn count_pattern(view: TensorView<'_>, pattern: u32) -> u64 {
    let word = pattern.to_le_bytes();
    let count = |bytes: &[u8], wanted: &[u8], skip: usize, step: usize| {
        bytes.chunks_exact(wanted.len()).skip(skip).step_by(step).map(|bytes| u64::from(bytes == wanted)).sum::<u64>()
    };
    view.bytes
        .par_chunks(PART * 8)
        .map(|bytes| match view.element.size_bytes() {
            8 => count(bytes, &[word, word].concat(), 0, 1),
            4 => count(bytes, &word, 0, 1),
            2 => count(bytes, &word[2..], 1, 2),
            _ => 0,
        })
        .sum()
}

/// Returns `|value - expected| / (atol + rtol * |expected|)`; infinite when either is not finite.
#[must_use]
#[inline]
pub fn normalized_error(value: f64, expected: f64, tolerance: &Tolerance) -> f64 {
    let (difference, allowed) = ((value - expected).abs(), tolerance.atol + tolerance.rtol * expected.abs());
    // The division is always carried out, for several elements at once: an expected value of zero without an absolute
    // tolerance gives infinity.
    let quotient = difference / allowed;
    let error = if difference == 0.0 { 0.0 } else { quotient };
    if value.is_finite() & expected.is_finite() { error } else { f64::INFINITY }
}

/// Returns the position in a row-major tensor, outermost first.
fn unravel(index: u64, shape: &[u64]) -> Vec<u64> {
    let mut rest = index;
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

fn as_count(elements: usize) -> u64 {
    u64::try_from(elements).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
