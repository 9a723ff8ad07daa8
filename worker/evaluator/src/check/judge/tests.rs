//! What passes, and what does not.

use nightshift_protocol::task::Distribution;

use super::*;

const TOLERANCE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-2, reference_error_factor: 64.0 };

fn allowed(reference_error: f64) -> f64 {
    Limits::against_truth(&TOLERANCE, ReferenceError::of(reference_error)).allowed
}

fn output(elements: u64, wrong_elements: u64, largest_error: f64) -> OutputErrors {
    OutputErrors { elements, wrong_elements, largest_error }
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
    let limits = Limits::against_truth(&TOLERANCE, ReferenceError::of(3.0));
    assert!(close(limits.widened, 12.0) && close(limits.tolerance.atol, 0.012) && close(limits.allowed, 1.0));
    assert!(close(limits.tolerance.rtol, 0.01), "no program may be 12 % off: {limits:?}");
    let fine = Tolerance { rtol: 1e-4, ..TOLERANCE };
    assert!(close(Limits::against_truth(&fine, ReferenceError::of(3.0)).tolerance.rtol, 0.0012));
    assert!(close(Limits::against_truth(&fine, ReferenceError::of(300.0)).tolerance.rtol, 0.01));
    assert!(close(Limits::against_truth(&TOLERANCE, ReferenceError::of(0.1)).widened, 1.0));
}

#[test]
fn outputs_next_to_the_reference_s_may_be_off_by_both_errors() {
    let limits = Limits::against_reference(&TOLERANCE, ReferenceError::of(0.01));
    assert!(close(limits.allowed, 2.0 * (0.64 + 0.01)));
}

#[test]
fn integers_are_wrong_as_often_as_those_of_the_reference_and_widen_nothing() {
    let error = |wrong_integers| ReferenceError { wrong_integers, ..ReferenceError::default() };
    let limits = Limits::against_truth(&TOLERANCE, error(0.01));
    assert!(close(limits.integers, 0.04) && close(limits.widened, 1.0) && close(limits.allowed, 1.0));
    assert!(close(Limits::against_reference(&TOLERANCE, error(0.01)).integers, 0.05));
    assert!(close(Limits::of(&TOLERANCE).integers, 1e-4), "where the reference has none, few");
    assert!(error(0.2).is_meaningless(&TOLERANCE) && !error(0.1).is_meaningless(&TOLERANCE));
}

#[test]
fn rounding_that_was_not_seen_allows_few_integers() {
    let allowed = |rows: u64| {
        let (name, distribution) = ("best".to_owned(), Distribution::default());
        let classes = ConcreteTensor { name, dtype: DType::I32, shape: vec![rows], distribution };
        let error = ReferenceError::default().of_rounding(&[classes]);
        [Limits::against_truth(&TOLERANCE, error), Limits::against_reference(&TOLERANCE, error)]
            .map(|limits| limits.integers)
    };
    for (rows, beside_truth, beside_reference) in [(16, 0.125, 0.125), (96, 0.125, 0.125), (300, 0.04, 0.05)] {
        let [truth, reference] = allowed(rows);
        assert!((truth - beside_truth).abs() < 2e-4 && (reference - beside_reference).abs() < 2e-4, "{rows}: {truth}");
    }
}

/// Limits beside a reference for which the tolerance is widened beyond its cap.
fn limits_beyond_cap() -> Limits {
    let error = ReferenceError::of(20.0);
    let error = ReferenceError { under_widened: 3.0, under_widest: 2.0, relative: 0.03, ..error };
    Limits::against_reference(&TOLERANCE, error)
}

#[test]
fn few_elements_may_differ_from_a_reference_that_has_wrong_ones() {
    let limits = limits_beyond_cap();
    let (few, precise) = (output(10_000, 1, 19.0), output(100, 0, 0.5));
    assert!(limits.is_beyond_cap && limits.pass_beside_reference(&[few, precise]));
    assert!(!limits.pass_beside_reference(&[output(10_000, 2, 19.0)]), "more than few");
    let exact = Limits::against_reference(&TOLERANCE, ReferenceError::of(0.01));
    assert!(!exact.pass_beside_reference(&[few]), "its reference has none");
}

#[test]
fn wrong_elements_beside_the_reference_s_are_counted_by_output_and_not_far_off() {
    let limits = limits_beyond_cap();
    let large = output(1_000_000, 0, 0.5);
    assert!(!limits.pass_beside_reference(&[output(1_000_000, 1, 21.0)]), "ten times the reference's own worst error");
    for pass in [Limits::pass_beside_reference, Limits::pass_timed] {
        assert!(!pass(&limits, &[large, output(1, 1, 19.0)]), "all of a small output is wrong");
        assert!(!pass(&limits, &[output(1_000_000, 1, f64::INFINITY)]), "not a number");
    }
    let of = |outputs: &[OutputErrors]| Comparison { outputs: outputs.to_vec(), ..Comparison::default() };
    let reference = of(&[output(1_000_000, 2, 1.5), output(20_000, 0, 0.9)]);
    assert!(is_like_reference(&of(&[output(1_000_000, 8, 6.0), large]), &reference));
    assert!(!is_like_reference(&of(&[large, output(20_000, 1, 1.2)]), &reference), "the reference has none there");
    assert!(!is_like_reference(&of(&[large]), &reference), "an output is missing");
}

#[test]
fn few_elements_of_a_timed_call_may_be_far_off_where_sums_cancel() {
    // The smallest of so many evenly distributed sums lies about there, and an element's error goes with one over its sum.
    let (elements, known_calls, timed_calls) = (1_000_000_u64, 2.0, 500.0);
    let error = ReferenceError {
        normalized: 2_400.0,
        under_widened: 24.0,
        under_widest: 0.5,
        relative: 0.24,
        ..ReferenceError::default()
    };
    assert!(!error.is_meaningless(&TOLERANCE));
    let limits = Limits::against_reference(&TOLERANCE, error);
    let worst = error.under_widest * timed_calls / known_calls;
    let honest = output(elements, 3, worst);
    assert!(limits.pass_timed(&[honest]), "{limits:?}");
    assert!(!limits.pass_beside_reference(&[honest]), "the truth is asked");
    assert!(!limits.pass_timed(&[output(elements, 101, worst)]), "more than few");
    let exact = Limits::against_reference(&TOLERANCE, ReferenceError::of(0.01));
    assert!(!exact.pass_timed(&[honest]), "its reference has none");
}

#[test]
fn a_reference_that_misses_the_widened_tolerance_is_right_and_zeros_are_not() {
    for rtol in [1e-4, 1e-2, 0.05, 0.1] {
        for off in [0.02, 0.1, 0.24] {
            let tolerance = Tolerance { atol: 1e-4, rtol, reference_error_factor: 64.0 };
            // The element is so large that the absolute part says nothing.
            let normalized = off / rtol;
            let under_widened = off / Limits::against_truth(&tolerance, ReferenceError::of(normalized)).tolerance.rtol;
            let error = ReferenceError { normalized, under_widened, relative: off, ..ReferenceError::default() };
            assert!(!error.is_meaningless(&tolerance), "{error:?}");
            let both =
                [(Limits::against_truth(&tolerance, error), off), (Limits::against_reference(&tolerance, error), 0.0)];
            for (limits, of_reference) in both {
                assert!(of_reference / limits.tolerance.rtol <= limits.allowed, "{off}: {limits:?}");
            }
            assert!(
                both.iter().all(|(limits, _)| 1.0 / limits.tolerance.rtol > limits.allowed),
                "zeros pass: {both:?}"
            );
        }
    }
}

#[test]
fn a_program_may_have_wrong_elements_where_the_reference_has_and_hardly_more() {
    let of = |elements, wrong_elements, largest_error| Comparison {
        outputs: vec![output(elements, wrong_elements, largest_error)],
        ..Comparison::default()
    };
    let compared = |wrong_elements, largest_error| of(1_000_000, wrong_elements, largest_error);
    let reference = compared(2, 1.5);
    assert!(is_like_reference(&reference, &reference) && is_like_reference(&compared(8, 6.0), &reference));
    assert!(!is_like_reference(&compared(9, 1.5), &reference) && !is_like_reference(&compared(1, 7.0), &reference));
    assert!(!is_like_reference(&compared(1, 1.1), &compared(0, 0.9)), "an exact reference allows none");
    let rough = of(1_000, 300, 1.8);
    assert!(!is_like_reference(&of(1_000, 1_000, 2.0), &rough), "zeros do not pass next to a rough reference");
    assert!(!is_like_reference(&rough, &rough), "a task whose reference is so rough says nothing");
}

#[test]
fn no_error_of_a_reference_widens_a_tolerance_without_end() {
    for rtol in [1e-4, 0.05, 0.5] {
        let tolerance = Tolerance { atol: 1e-4, rtol, reference_error_factor: 64.0 };
        let error = ReferenceError {
            normalized: 1e4,
            under_widened: 1e3,
            under_widest: 50.0,
            relative: 0.9,
            ..ReferenceError::default()
        };
        let limits = Limits::against_truth(&tolerance, error);
        assert!(limits.tolerance.rtol <= MAX_RTOL && close(limits.tolerance.atol, 4.0), "{limits:?}");
        assert!(error.is_meaningless(&tolerance));
    }
    let is_meaningless = |normalized: f64, under_widened: f64, relative: f64| {
        ReferenceError { normalized, under_widened, relative, ..ReferenceError::default() }
            .is_meaningless(&Tolerance { rtol: 1e-4, ..TOLERANCE })
    };
    assert!(is_meaningless(3_000.0, 30.0, 0.3) && is_meaningless(3_000.0, 0.2, 900.0));
    assert!(!is_meaningless(900.0, 0.2, 900.0) && !is_meaningless(3_000.0, 16.0, 0.17));
}
