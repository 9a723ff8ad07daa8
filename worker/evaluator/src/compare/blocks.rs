//! Arithmetic on blocks of errors, with the widest instructions of the processor: a comparison spends most of its time here.

use multiversion::multiversion;
use nightshift_protocol::task::Tolerance;

use super::normalized_error;

/// Replaces values by their normalized errors.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn turn_into_errors(values: &mut [f64], expected: &[f64], tolerance: &Tolerance) {
    for (value, expected) in values.iter_mut().zip(expected) {
        *value = normalized_error(*value, *expected, tolerance);
    }
}

/// Returns the largest error, and 0 of none.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn largest_of(errors: &[f64]) -> f64 {
    let larger = |largest: f64, error: f64| if error > largest { error } else { largest };
    // Several independent maxima: in one chain each comparison would wait for the one before.
    let (groups, rest) = errors.as_chunks::<32>();
    let mut largest = [0.0; 32];
    for group in groups {
        for (one, error) in largest.iter_mut().zip(group) {
            *one = larger(*one, *error);
        }
    }
    largest.into_iter().chain(rest.iter().copied()).fold(0.0, larger)
}

/// Counts the errors that are a bound or more.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn count_at_least(errors: &[f64], bound: f64) -> u64 {
    errors.iter().map(|error| u64::from(*error >= bound)).sum()
}

/// Counts the errors that are more than a bound.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn count_above(errors: &[f64], bound: f64) -> u64 {
    errors.iter().map(|error| u64::from(*error > bound)).sum()
}
