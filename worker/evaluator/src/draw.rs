//! Values of inputs and weights, drawn from secret seeds.
//!
//! Equal seeds give equal bits, in every process and representation. This module draws on the host; a device draws with its own
//! kernels (`device/kernels.cu`), from other numbers of the same distributions.

use nightshift_protocol::task::{ConcreteTensor, DType, Distribution};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Normal, StandardNormal, Uniform};
use rayon::prelude::*;

use crate::element::Element;
use crate::seeds::SecretSeeds;
use crate::tensor::{HostTensor, PART};

/// A change of the declared distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// No change.
    Declared,
    /// Values are three times as large.
    ScaledUp,
    /// Values are a hundredth as large.
    ScaledDown,
    /// Each sign is drawn anew.
    SignsFlipped,
}

impl InputKind {
    /// The factor of the values.
    pub(crate) fn factor(self) -> f32 {
        match self {
            Self::Declared | Self::SignsFlipped => 1.0,
            Self::ScaledUp => 3.0,
            Self::ScaledDown => 0.01,
        }
    }
}

/// The random draw of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Seed of its values.
    pub seed: u64,
    /// Change of the distribution.
    pub kind: InputKind,
    /// A further factor of the values.
    pub scale: f32,
    /// A few elements that are others.
    pub few: Option<Few>,
    /// Low bits of the significand of 32-bit floats that values are rounded to have as zeros.
    pub dropped_bits: u32,
}

/// A few elements of a tensor, at places that a program cannot expect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Few {
    /// Seed of their places and values.
    pub seed: u64,
    /// One in this many elements belongs to them.
    pub one_in: u64,
    /// A factor of their values.
    pub scale: f32,
}

impl Draw {
    /// Draws as the task declares it.
    #[must_use]
    pub fn declared(seed: u64) -> Self {
        Self { seed, kind: InputKind::Declared, scale: 1.0, few: None, dropped_bits: 0 }
    }

    /// The same but for a few elements.
    #[must_use]
    pub fn with_few(self, few: Few) -> Self {
        Self { few: Some(few), ..self }
    }

    /// The same, with values that are rounded so that so many low bits of their significands are zeros.
    #[must_use]
    pub fn rounded(self, dropped_bits: u32) -> Self {
        Self { dropped_bits, ..self }
    }

    /// Returns one draw for each of so many tensors.
    #[must_use]
    pub fn all(count: usize, seed: u64, kind: InputKind) -> Vec<Self> {
        let mut seeds = SecretSeeds::fixed(seed);
        (0..count).map(|_| Self { seed: seeds.draw(), kind, scale: 1.0, few: None, dropped_bits: 0 }).collect()
    }

    /// The factor of the values.
    pub(crate) fn factor(self) -> f32 {
        self.kind.factor() * self.scale
    }
}

/// Draws a tensor in the representation of the contract.
#[must_use]
pub fn draw_on_host(tensor: &ConcreteTensor, draw: Draw) -> HostTensor {
    let element = Element::of(tensor.dtype);
    let (width, count) = (element.size_bytes(), usize::try_from(tensor.elements()).unwrap_or(usize::MAX));
    let mut bytes = vec![0_u8; count.saturating_mul(width)];
    // Each part has a stream of its own, so that the values do not depend on the number of threads.
    bytes.par_chunks_mut(PART * width).enumerate().for_each(|(number, place)| {
        let mut random = ChaCha8Rng::seed_from_u64(draw.seed);
        random.set_stream(u64::try_from(number).unwrap_or(0));
        let mut values = vec![0.0; place.len() / width];
        draw_values(&mut random, tensor, draw, &mut values);
        if let Some(few) = draw.few {
            let mut random = ChaCha8Rng::seed_from_u64(few.seed);
            random.set_stream(u64::try_from(number).unwrap_or(0));
            let mut others = vec![0.0; values.len()];
            let others_draw =
                Draw { seed: few.seed, kind: InputKind::Declared, scale: few.scale, few: None, dropped_bits: 0 };
            draw_values(&mut random, tensor, others_draw, &mut others);
            for (value, other) in values.iter_mut().zip(others) {
                if random.random_range(0..few.one_in.max(1)) == 0 {
                    *value = other;
                }
            }
        }
        let is_label = matches!(tensor.distribution, Distribution::Steps { .. });
        if draw.dropped_bits > 0 && tensor.dtype != DType::I32 && !is_label {
            for value in &mut values {
                *value = rounded(*value, draw.dropped_bits);
            }
        }
        element.narrow(&values, place);
    });
    HostTensor::new(element, bytes)
}

/// Rounds a value to the nearest 32-bit float with so many low bits of zeros, away from zero in the middle.
#[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
fn rounded(value: f64, dropped_bits: u32) -> f64 {
    let half = (1_u32 << dropped_bits) >> 1;
    let bits = (value as f32).to_bits().wrapping_add(half) >> dropped_bits << dropped_bits;
    f64::from(f32::from_bits(bits))
}

fn draw_values(random: &mut ChaCha8Rng, tensor: &ConcreteTensor, draw: Draw, values: &mut [f64]) {
    if tensor.dtype == DType::I32 {
        // Integers are counts or indices: a scaled index would point outside.
        integers(random, &tensor.distribution, values);
    } else {
        floats(random, &tensor.distribution, draw, values);
    }
}

fn floats(random: &mut ChaCha8Rng, distribution: &Distribution, draw: Draw, values: &mut [f64]) {
    // Zero is added because zeros have no sign here.
    let factor = draw.factor();
    match *distribution {
        #[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
        Distribution::Normal { mean, std } => {
            let (mean, std) = (mean as f32, std as f32);
            values.fill_with(|| {
                let standard: f32 = StandardNormal.sample(random);
                f64::from((mean + std * standard) * factor + 0.0)
            });
        }
        #[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
        Distribution::Uniform { low, high } => {
            let (low, width) = (low as f32, (high - low) as f32);
            values.fill_with(|| f64::from((low + width * random.random::<f32>()) * factor + 0.0));
        }
        // Labels and truth values keep their meaning only as they are.
        Distribution::Steps { low, high, step } => return steps(random, (low, high, step), values),
    }
    if draw.kind == InputKind::SignsFlipped {
        for value in values {
            if random.random::<bool>() {
                *value = -*value;
            }
        }
    }
}

fn integers(random: &mut ChaCha8Rng, distribution: &Distribution, values: &mut [f64]) {
    match *distribution {
        Distribution::Normal { mean, std } => match Normal::new(mean, std) {
            Ok(normal) => values.fill_with(|| normal.sample(random).round()),
            Err(_) => values.fill(mean.round()),
        },
        #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
        Distribution::Uniform { low, high } => match Uniform::new(low.ceil() as i32, high.ceil() as i32) {
            Ok(uniform) => values.fill_with(|| f64::from(uniform.sample(random))),
            Err(_) => values.fill(low.ceil()),
        },
        Distribution::Steps { low, high, step } => steps(random, (low, high, step), values),
    }
}

/// Draws values at equal distances, each with equal probability.
fn steps(random: &mut ChaCha8Rng, (low, high, step): (f64, f64, f64), values: &mut [f64]) {
    let count = Distribution::steps(low, high, step);
    #[expect(clippy::cast_precision_loss, reason = "a task has far fewer than 2^53 steps")]
    values.fill_with(|| low + step * random.random_range(0..count) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, distribution: Distribution) -> ConcreteTensor {
        ConcreteTensor { name: "x".to_owned(), dtype, shape: vec![100, 200], distribution }
    }

    fn drawn(dtype: DType, distribution: Distribution, kind: InputKind) -> Vec<f64> {
        draw_on_host(&tensor(dtype, distribution), Draw { kind, ..Draw::declared(7) }).view().to_f64()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / 20_000.0
    }

    #[test]
    fn values_are_rounded_to_the_nearest_that_the_format_has() {
        for (value, dropped, expected) in [
            (1.0 + 2.0_f64.powi(-11), 13, 1.0 + 2.0_f64.powi(-10)),
            (1.0 + 2.0_f64.powi(-12), 13, 1.0),
            (-1.0 - 2.0_f64.powi(-8), 16, -1.0 - 2.0_f64.powi(-7)),
            (0.0, 16, 0.0),
        ] {
            assert!((rounded(value, dropped) - expected).abs() < 1e-12, "{value} without {dropped} bits");
        }
        let tensor = tensor(DType::F32, Distribution::default());
        let exact = draw_on_host(&tensor, Draw::declared(7)).view().to_f64();
        let coarse = draw_on_host(&tensor, Draw::declared(7).rounded(13)).view().to_f64();
        let errors = exact.iter().zip(&coarse).map(|(exact, coarse)| ((exact - coarse) / exact).abs());
        let largest = errors.fold(0.0, f64::max);
        assert!(largest > 3e-4 && largest <= 2.0_f64.powi(-11), "{largest}");
    }

    #[test]
    fn equal_seeds_give_equal_bits_and_other_seeds_do_not() {
        let tensor = tensor(DType::F32, Distribution::default());
        let first = draw_on_host(&tensor, Draw::declared(7));
        assert_eq!(first, draw_on_host(&tensor, Draw::declared(7)));
        assert_ne!(first, draw_on_host(&tensor, Draw::declared(8)));
        assert_eq!(first.view().elements(), 20_000);
        let large = ConcreteTensor { shape: vec![3, PART as u64], ..tensor };
        assert_eq!(draw_on_host(&large, Draw::declared(1)), draw_on_host(&large, Draw::declared(1)));
    }

    #[test]
    fn values_follow_the_declared_distribution() {
        let normal = drawn(DType::F32, Distribution::Normal { mean: 2.0, std: 0.5 }, InputKind::Declared);
        assert!((mean(&normal) - 2.0).abs() < 0.02);
        let variance = normal.iter().map(|value| (value - 2.0).powi(2)).sum::<f64>() / 20_000.0;
        assert!((variance - 0.25).abs() < 0.02);
        let uniform = drawn(DType::F64, Distribution::Uniform { low: -1.0, high: 3.0 }, InputKind::Declared);
        assert!((mean(&uniform) - 1.0).abs() < 0.05);
        assert!(uniform.iter().all(|value| (-1.0..3.0).contains(value)));
    }

    #[test]
    fn integers_stay_in_their_range_whatever_the_kind() {
        for kind in [InputKind::Declared, InputKind::ScaledUp, InputKind::SignsFlipped] {
            let values = drawn(DType::I32, Distribution::Uniform { low: 0.0, high: 10.0 }, kind);
            assert!(values.iter().all(|value| (0.0..10.0).contains(value)));
            assert!(values.iter().any(|value| *value > 8.5));
        }
    }

    #[test]
    fn steps_are_all_drawn_and_nothing_else_whatever_the_kind() {
        let labels = Distribution::Steps { low: -1.0, high: 3.0, step: 2.0 };
        for dtype in [DType::F32, DType::I32, DType::Bf16, DType::F64] {
            for kind in [InputKind::Declared, InputKind::ScaledUp, InputKind::ScaledDown, InputKind::SignsFlipped] {
                let values = drawn(dtype, labels.clone(), kind);
                assert!(values.iter().all(|value| [-1.0, 1.0].contains(value)), "{dtype:?} {kind:?}");
                assert!(mean(&values).abs() < 0.05, "{dtype:?} {kind:?}");
            }
        }
    }

    #[test]
    fn the_kinds_change_what_they_say() {
        let uniform = Distribution::Uniform { low: 1.0, high: 2.0 };
        let up = drawn(DType::F32, uniform.clone(), InputKind::ScaledUp);
        assert!(up.iter().all(|value| (3.0..=6.0).contains(value)));
        let down = drawn(DType::F32, uniform.clone(), InputKind::ScaledDown);
        assert!(down.iter().all(|value| (0.0099..=0.0201).contains(value)));
        let flipped = drawn(DType::F32, uniform.clone(), InputKind::SignsFlipped);
        assert!(flipped.iter().any(|value| *value < 0.0) && flipped.iter().any(|value| *value > 0.0));
        let scaled = Draw { scale: 10.0, ..Draw::declared(7) };
        let scaled = draw_on_host(&tensor(DType::F32, uniform), scaled).view().to_f64();
        assert!(scaled.iter().all(|value| (10.0..=20.0).contains(value)));
    }

    #[test]
    fn a_few_elements_are_others() {
        for dtype in [DType::F32, DType::I32, DType::Bf16] {
            let tensor = tensor(dtype, Distribution::Uniform { low: 1.0, high: 100.0 });
            let (usual, few) = (Draw::declared(7), Few { seed: 9, one_in: 50, scale: 8.0 });
            let values = |draw: Draw| draw_on_host(&tensor, draw).view().to_f64();
            let changed: Vec<(f64, f64)> = values(usual)
                .into_iter()
                .zip(values(usual.with_few(few)))
                .filter(|(a, b)| a.total_cmp(b).is_ne())
                .collect();
            assert!((300..500).contains(&changed.len()), "{dtype:?}: {}", changed.len());
            let largest = changed.iter().map(|(_, other)| *other).fold(0.0, f64::max);
            assert!(if dtype == DType::I32 { largest < 100.0 } else { largest > 700.0 }, "{dtype:?}: {largest}");
            let zero = Draw { scale: 0.0, ..usual }.with_few(few);
            let zeros = values(zero).iter().filter(|value| **value == 0.0).count();
            assert!(zeros == 0 && dtype == DType::I32 || zeros > 19_000, "{dtype:?}: {zeros}");
        }
    }

    #[test]
    fn short_floats_are_long_ones_rounded() {
        let exact = drawn(DType::F32, Distribution::default(), InputKind::Declared);
        for (dtype, relative) in [(DType::F16, 1.0 / 2048.0), (DType::Bf16, 1.0 / 256.0)] {
            let short = drawn(dtype, Distribution::default(), InputKind::Declared);
            let near = |(short, exact): (&f64, &f64)| (short - exact).abs() <= exact.abs() * relative + 1e-7;
            assert!(short.iter().zip(&exact).all(near), "{dtype:?}");
        }
    }
}
