use nightshift_protocol::task::{DType, Distribution};

use super::*;
use crate::tensor::HostTensor;

const TOLERANCE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-2, reference_error_factor: 64.0 };

fn compare_values(output: &[f64], expected: &[f64], tolerance: &Tolerance) -> TensorComparison {
    let output = HostTensor::from_f64(Element::F32, output);
    let expected = HostTensor::from_f64(Element::F64, expected);
    compare(output.view(), expected.view(), tolerance)
}

fn one(value: f64, expected: f64) -> TensorComparison {
    compare_values(&[value], &[expected], &TOLERANCE)
}

fn shape(extents: &[u64]) -> ConcreteTensor {
    ConcreteTensor {
        name: "y".to_owned(),
        dtype: DType::F32,
        shape: extents.to_vec(),
        distribution: Distribution::default(),
    }
}

#[test]
fn equal_values_have_no_error() {
    let found = one(2.0, 2.0);
    assert_eq!((found.wrong_elements, found.histogram[0]), (0, 1));
    assert!(found.largest_error.abs() < f64::MIN_POSITIVE);
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
fn values_that_are_not_finite_are_wrong_on_either_side() {
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    for (value, expected) in
        [(nan, 1.0), (infinity, 1.0), (-infinity, -infinity), (nan, nan), (1.0, nan), (1.0, infinity)]
    {
        let found = one(value, expected);
        assert_eq!(found.wrong_elements, 1, "{value} against {expected}");
        assert!(found.largest_error.is_infinite());
        assert_eq!(found.histogram[ERROR_HISTOGRAM_BOUNDS.len()], 1);
    }
}

#[test]
fn without_an_absolute_part_an_expected_zero_allows_only_zero() {
    let strict = Tolerance { atol: 0.0, ..TOLERANCE };
    assert_eq!(compare_values(&[0.0], &[0.0], &strict).wrong_elements, 0);
    assert_eq!(compare_values(&[-0.0], &[0.0], &strict).wrong_elements, 0);
    assert!(normalized_error(1e-30, 0.0, &strict).is_infinite());
}

#[test]
fn the_worst_element_is_found_with_its_position() {
    let mut values = vec![1.0; 24];
    (values[5], values[17]) = (1.02, 3.0);
    let found = compare_values(&values, &[1.0; 24], &TOLERANCE);
    let mut comparison = Comparison::default();
    comparison.add(&shape(&[2, 3, 4]), &found);
    assert_eq!((comparison.wrong_elements, comparison.elements), (2, 24));
    let Some(worst) = comparison.worst else { panic!("there is a worst element") };
    assert_eq!((worst.index, worst.candidate), (vec![1, 1, 1], Some(3.0)));
    assert_eq!(comparison.histogram.iter().sum::<u64>(), 24);
}

#[test]
fn the_worst_of_several_outputs_is_the_worst_of_all() {
    let mut comparison = Comparison::default();
    for values in [[1.0, 1.0], [1.0, 5.0], [1.2, 1.0]] {
        comparison.add(&shape(&[2]), &compare_values(&values, &[1.0, 1.0], &TOLERANCE));
    }
    assert_eq!(comparison.worst.and_then(|worst| worst.candidate), Some(5.0));
}

#[test]
fn the_histogram_counts_by_powers_of_ten() {
    let strict = Tolerance { atol: 1.0, rtol: 0.0, ..TOLERANCE };
    let found = compare_values(&[0.0, 5e-6, 5e-3, 0.5, 1.0, 5.0, 50.0], &[0.0; 7], &strict);
    assert_eq!(found.histogram, [1, 1, 0, 0, 1, 0, 1, 2, 1]);
    // An error of exactly 1 is within tolerance.
    assert_eq!(found.wrong_elements, 2);
}

#[test]
fn large_tensors_are_compared_to_their_last_element() {
    let length = 2 * PART + BLOCK + 7;
    for place in [0, BLOCK, PART - 1, PART, length - 1] {
        let mut values = vec![1.0; length];
        values[place] = 1.5;
        let found = compare_values(&values, &vec![1.0; length], &TOLERANCE);
        assert_eq!((found.wrong_elements, found.worst.map(|worst| worst.0)), (1, Some(as_count(place))));
    }
}

#[test]
fn missing_elements_are_wrong() {
    let found = compare_values(&[1.0; 3], &[1.0; 4], &TOLERANCE);
    assert_eq!(found.wrong_elements, 1);
    assert!(found.largest_error.is_infinite());
}

#[test]
fn rounding_errors_are_no_noticeable_change() {
    let differ = |left: f64, right: f64, output| {
        let (left, right) =
            (HostTensor::from_f64(Element::F64, &[1.0, left]), HostTensor::from_f64(Element::F64, &[1.0, right]));
        differ_noticeably(left.view(), right.view(), output, &TOLERANCE, UNNOTICED)
    };
    assert!(!differ(3.0, 3.0 + 1e-15, Element::F32) && !differ(0.0, 1e-9, Element::F32));
    assert!(differ(3.0, 3.001, Element::F32) && differ(0.0, 1e-4, Element::F32));
    // Between two neighbours of 16 bits, and beyond.
    assert!(!differ(1.0, 1.001, Element::F16) && differ(1.0, 1.01, Element::F16));
    assert!(differ(1.0, 2.0, Element::I32) && differ(1.0, f64::NAN, Element::F32));
}

#[test]
fn elements_that_were_not_written_are_counted() {
    let pattern = 0x7FFC_3412_u32;
    let bytes = |element: Element, values: &[f64]| {
        let mut bytes = HostTensor::from_f64(element, values).bytes().to_vec();
        bytes.extend(pattern.to_le_bytes().repeat(4));
        bytes
    };
    for (element, expected) in [
        (Element::F32, 4),
        (Element::I32, 4),
        (Element::F64, 2),
        (Element::F16, 4),
        (Element::Bf16, 4),
        (Element::U8, 0),
    ] {
        let bytes = bytes(element, &[1.0; 8]);
        assert_eq!(count_pattern(TensorView { element, bytes: &bytes }, pattern), expected, "{element:?}");
    }
    assert!(is_finite(HostTensor::from_f64(Element::F16, &[1.0, 65_504.0]).view()));
    assert!(!is_finite(HostTensor::from_f64(Element::F32, &[1.0, f64::NAN]).view()));
    assert!(is_finite(HostTensor::from_f64(Element::I64, &[1.0]).view()));
}
