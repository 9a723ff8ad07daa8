//! Some errors at a time, with the widest instructions that the processor has: most of a comparison's time is spent here. What comes
//! out does not depend on them, as nothing is reordered but the search for a largest value.

use multiversion::multiversion;

use nightshift_protocol::task::Tolerance;

use super::normalized_error;

/// Turns values into their normalized errors.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn turn_into_errors(values: &mut [f64], truth: &[f64], tolerance: &Tolerance) {
    for (value, truth) in values.iter_mut().zip(truth) {
        *value = normalized_error(*value, *truth, tolerance);
    }
}

/// The largest of errors, and 0 of none. Of so many rows, in turn: one after the other they would wait for each other.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn largest_of(errors: &[f64]) -> f64 {
    let larger = |largest: f64, error: f64| if error > largest { error } else { largest };
    let (groups, rest) = errors.as_chunks::<32>();
    let mut largest = [0.0; 32];
    for group in groups {
        for (one, error) in largest.iter_mut().zip(group) {
            *one = larger(*one, *error);
        }
    }
    largest.into_iter().chain(rest.iter().copied()).fold(0.0, larger)
}

/// How many errors are a bound or more.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn count_at_least(errors: &[f64], bound: f64) -> u64 {
    errors.iter().map(|error| u64::from(*error >= bound)).sum()
}

/// How many errors are more than a bound.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn count_above(errors: &[f64], bound: f64) -> u64 {
    errors.iter().map(|error| u64::from(*error > bound)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_a_time_are_what_each_is_alone() {
        let tolerance = Tolerance { atol: 1e-3, rtol: 1e-2, reference_error_factor: 64.0 };
        // Not a multiple of what any processor does at a time, with values of every kind.
        let truth: Vec<f64> = (0..1013).map(|i| f64::from(i % 7) * 0.5 - 1.0).collect();
        let mut values: Vec<f64> = truth.iter().zip(0..).map(|(truth, i)| truth + f64::from(i % 11) * 1e-3).collect();
        (values[5], values[100], values[1012]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
        let alone: Vec<f64> = values.iter().zip(&truth).map(|(a, b)| normalized_error(*a, *b, &tolerance)).collect();
        turn_into_errors(&mut values, &truth, &tolerance);
        assert!(values.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert!(values[5].is_infinite() && largest_of(&values).is_infinite());
        assert_eq!(values.iter().filter(|error| error.is_infinite()).count(), 3);
        for part in [&alone[6..100], &alone[101..1012], &alone[200..201], &[]] {
            let largest = part.iter().copied().fold(0.0, f64::max);
            assert_eq!(largest_of(part).to_bits(), largest.to_bits());
            for bound in [0.0, 0.5, largest, 1.0] {
                let count =
                    |holds: &dyn Fn(f64) -> bool| part.iter().map(|error| u64::from(holds(*error))).sum::<u64>();
                assert_eq!(count_at_least(part, bound), count(&|error| error >= bound));
                assert_eq!(count_above(part, bound), count(&|error| error > bound));
            }
        }
    }
}
