//! Input values: drawn from secret seeds, the same for every program that is given them.

mod bytes;
mod half;
mod values;

use std::borrow::Cow;

use multiversion::multiversion;
use nightshift_protocol::task::{ConcreteTensor, DType, Distribution};
use rand::{Rng, RngExt, SeedableRng, TryRng};
use rand_chacha::{ChaCha8Rng, ChaCha12Rng};
use rand_distr::{Distribution as _, Normal, StandardNormal, Uniform};

use self::half::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};
pub use self::values::{Element, Values};
pub(crate) use self::values::{InUse, keep_at_most};
use crate::parts::{PART, in_all_parts};

/// Seeds that no program can foresee: started from the randomness of the operating system when a step begins.
#[derive(Debug, Clone)]
pub struct SecretSeeds(ChaCha12Rng);

impl SecretSeeds {
    /// Started from the operating system.
    pub fn from_os() -> std::io::Result<Self> {
        let mut seed = [0_u8; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut seed).map_err(std::io::Error::other)?;
        Ok(Self(ChaCha12Rng::from_seed(seed)))
    }

    /// Started from a number: repeatable, for tests.
    #[must_use]
    pub fn fixed(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// The next seed.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below another one; 0 below 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.draw() >> 32).unwrap_or(0) % limit.max(1)
    }

    /// A coin.
    pub fn flip(&mut self) -> bool {
        self.0.random()
    }
}

/// What is done to the declared distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Nothing.
    Declared,
    /// Three times as large.
    ScaledUp,
    /// A hundredth.
    ScaledDown,
    /// Each sign drawn anew.
    SignsFlipped,
}

/// Elements that are looked at before somebody asks what was seen: of so many at a time processors see several at once.
const AT_A_TIME: usize = 4096;

/// Values of one tensor. They never change, and a copy shares them.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    /// IEEE 754 binary32.
    F32(Values<f32>),
    /// IEEE 754 binary64.
    F64(Values<f64>),
    /// Two's complement, 32 bits.
    I32(Values<i32>),
    /// IEEE 754 binary16, by its bits.
    F16(Values<u16>),
    /// The upper half of an IEEE 754 binary32, by its bits.
    Bf16(Values<u16>),
}

/// Makes a tensor of values of one type.
macro_rules! from_values {
    ($($value:ty => $kind:ident),*) => {
        $(impl From<Vec<$value>> for TensorData {
            fn from(values: Vec<$value>) -> Self {
                Self::$kind(values.into())
            }
        })*
    };
}

from_values!(f32 => F32, f64 => F64, i32 => I32);

/// Calls one macro-like expression for the values inside.
macro_rules! each {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            TensorData::F32(values) => {
                let $values: &[_] = values;
                $body
            }
            TensorData::F64(values) => {
                let $values: &[_] = values;
                $body
            }
            TensorData::I32(values) => {
                let $values: &[_] = values;
                $body
            }
            TensorData::F16(values) | TensorData::Bf16(values) => {
                let $values: &[_] = values;
                $body
            }
        }
    };
}

impl TensorData {
    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
            Self::I32(_) => DType::I32,
            Self::F16(_) => DType::F16,
            Self::Bf16(_) => DType::Bf16,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements as 64-bit floats: exact for every type.
    #[must_use]
    pub fn as_f64(&self) -> Cow<'_, [f64]> {
        self.part_as_f64(0..self.len())
    }

    /// Some elements as 64-bit floats.
    #[must_use]
    pub(crate) fn part_as_f64(&self, part: std::ops::Range<usize>) -> Cow<'_, [f64]> {
        match self {
            Self::F32(values) => Cow::Owned(values[part].iter().copied().map(f64::from).collect()),
            Self::F64(values) => Cow::Borrowed(&values[part]),
            Self::I32(values) => Cow::Owned(values[part].iter().copied().map(f64::from).collect()),
            Self::F16(values) => Cow::Owned(values[part].iter().map(|bits| f64::from(f16_to_f32(*bits))).collect()),
            Self::Bf16(values) => Cow::Owned(values[part].iter().map(|bits| f64::from(bf16_to_f32(*bits))).collect()),
        }
    }

    /// Writes some elements as 64-bit floats to a place of that length.
    pub(crate) fn widen_part(&self, part: std::ops::Range<usize>, place: &mut [f64]) {
        fn widen<T: Copy>(values: &[T], place: &mut [f64], one: impl Fn(T) -> f64) {
            for (place, value) in place.iter_mut().zip(values) {
                *place = one(*value);
            }
        }
        match self {
            Self::F32(values) => widen_floats(&values[part], place),
            Self::F64(values) => place.copy_from_slice(&values[part]),
            Self::I32(values) => widen(&values[part], place, f64::from),
            Self::F16(values) => widen(&values[part], place, |bits| f64::from(f16_to_f32(bits))),
            Self::Bf16(values) => widen(&values[part], place, |bits| f64::from(bf16_to_f32(bits))),
        }
    }

    /// Whether every element is finite.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        match self {
            Self::F32(values) => all(values, f32::is_finite),
            Self::F64(values) => all(values, f64::is_finite),
            Self::I32(_) => true,
            Self::F16(values) => all(values, |bits| bits & 0x7C00 != 0x7C00),
            Self::Bf16(values) => all(values, |bits| bits & 0x7F80 != 0x7F80),
        }
    }

    /// Whether two tensors have the same bits.
    #[must_use]
    pub fn same_bits(&self, other: &Self) -> bool {
        fn same<T: Copy + Sync>(a: &[T], b: &[T], same: impl Fn(T, T) -> bool + Sync) -> bool {
            let alike = |(a, b): (&[T], &[T])| a.iter().zip(b).fold(true, |so_far, (a, b)| so_far & same(*a, *b));
            let of_part = |part: std::ops::Range<usize>| {
                a[part.clone()].chunks(AT_A_TIME).zip(b[part].chunks(AT_A_TIME)).all(alike)
            };
            a.len() == b.len() && in_all_parts(a.len(), of_part)
        }
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => same(a, b, |a, b| a.to_bits() == b.to_bits()),
            (Self::F64(a), Self::F64(b)) => same(a, b, |a, b| a.to_bits() == b.to_bits()),
            (Self::I32(a), Self::I32(b)) => same(a, b, |a, b| a == b),
            (Self::F16(a), Self::F16(b)) | (Self::Bf16(a), Self::Bf16(b)) => same(a, b, |a, b| a == b),
            _ => false,
        }
    }

    /// The elements from a place on, and behind them those of another tensor of the same kind, up to the same length.
    #[must_use]
    pub(crate) fn spliced(&self, other: &Self, from: usize) -> Self {
        fn splice<T: Element>(first: &[T], second: &[T], from: usize) -> Values<T> {
            let kept = first.get(from..).unwrap_or_default();
            let rest = second.get(..first.len() - kept.len()).unwrap_or(second);
            Values::filled(kept.len() + rest.len(), |values| {
                let (front, back) = values.split_at_mut(kept.len());
                front.copy_from_slice(kept);
                back.copy_from_slice(rest);
            })
        }
        match (self, other) {
            (Self::F32(first), Self::F32(second)) => Self::F32(splice(first, second, from)),
            (Self::F64(first), Self::F64(second)) => Self::F64(splice(first, second, from)),
            (Self::I32(first), Self::I32(second)) => Self::I32(splice(first, second, from)),
            (Self::F16(first), Self::F16(second)) => Self::F16(splice(first, second, from)),
            (Self::Bf16(first), Self::Bf16(second)) => Self::Bf16(splice(first, second, from)),
            _ => self.clone(),
        }
    }

    /// Copies the elements into memory, little-endian; as 64-bit floats where that is the type of what lies there.
    pub(crate) fn copy_to_bytes(&self, dtype: DType, bytes: &mut [u8]) {
        match (self, dtype == DType::F64) {
            (Self::F32(values), true) => bytes::write(values, bytes, |value| f64::from(value).to_le_bytes()),
            (Self::F16(values), true) => bytes::write(values, bytes, |bits| f64::from(f16_to_f32(bits)).to_le_bytes()),
            (Self::Bf16(values), true) => {
                bytes::write(values, bytes, |bits| f64::from(bf16_to_f32(bits)).to_le_bytes());
            }
            (Self::F32(values), false) => bytes::copy(values, bytes),
            (Self::F64(values), _) => bytes::copy(values, bytes),
            (Self::I32(values), _) => bytes::copy(values, bytes),
            (Self::F16(values) | Self::Bf16(values), false) => bytes::copy(values, bytes),
        }
    }

    /// Elements of a type from memory.
    pub(crate) fn read(dtype: DType, bytes: &[u8]) -> Self {
        Self::read_and_count(dtype, bytes, None).0
    }

    /// The same, and how many elements have exactly the bits of a repeated pattern. Of two 16-bit elements only the second one
    /// counts: the first one's half of the pattern is a number like any other, which programs may give.
    pub(crate) fn read_and_count(dtype: DType, bytes: &[u8], pattern: Option<[u8; 8]>) -> (Self, u64) {
        let whole = pattern.unwrap_or_default();
        let [a, b, c, d, ..] = whole;
        let (word, long, upper) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(whole), [c, d]);
        /// Elements out of memory, of which some may count.
        macro_rules! read {
            ($kind:ident, $part:ident => $are:expr) => {{
                // Counting takes its time, which nobody spends who does not ask.
                let seen = |$part: &[_]| if pattern.is_some() { sum($are) } else { 0 };
                let (values, count) = bytes::read(bytes, seen);
                (Self::$kind(values), count)
            }};
        }
        let short = u16::from_le_bytes(upper);
        match dtype {
            DType::F32 => read!(F32, part => part.iter().map(|value: &f32| value.to_bits() == word)),
            DType::F64 => read!(F64, part => part.iter().map(|value: &f64| value.to_bits() == long)),
            DType::I32 => read!(I32, part => part.iter().map(|value: &i32| value.cast_unsigned() == word)),
            DType::F16 => read!(F16, part => part.iter().skip(1).step_by(2).map(|bits: &u16| *bits == short)),
            DType::Bf16 => read!(Bf16, part => part.iter().skip(1).step_by(2).map(|bits: &u16| *bits == short)),
        }
    }

    /// Whether this is another handle of the same elements in memory.
    pub(crate) fn shares_memory(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => a.shares_memory(b),
            (Self::F64(a), Self::F64(b)) => a.shares_memory(b),
            (Self::I32(a), Self::I32(b)) => a.shares_memory(b),
            (Self::F16(a), Self::F16(b)) | (Self::Bf16(a), Self::Bf16(b)) => a.shares_memory(b),
            _ => false,
        }
    }

    /// Whether memory holds exactly these elements, as [`Self::copy_to_bytes`] leaves them.
    pub(crate) fn equals_bytes(&self, dtype: DType, bytes: &[u8]) -> bool {
        match (self, dtype == DType::F64) {
            (Self::F32(values), true) => bytes::equal(values, bytes, |value| f64::from(value).to_le_bytes()),
            (Self::F16(values), true) => bytes::equal(values, bytes, |bits| f64::from(f16_to_f32(bits)).to_le_bytes()),
            (Self::Bf16(values), true) => {
                bytes::equal(values, bytes, |bits| f64::from(bf16_to_f32(bits)).to_le_bytes())
            }
            (Self::F32(values), false) => bytes::same(values, bytes),
            (Self::F64(values), _) => bytes::same(values, bytes),
            (Self::I32(values), _) => bytes::same(values, bytes),
            (Self::F16(values) | Self::Bf16(values), false) => bytes::same(values, bytes),
        }
    }
}

/// Widens values, with the widest instructions that the processor has: comparisons widen all that they look at.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn widen_floats(values: &[f32], place: &mut [f64]) {
    for (place, value) in place.iter_mut().zip(values) {
        *place = f64::from(*value);
    }
}

/// Whether something holds for all values; of some at a time without a look at which, which is several times as fast.
fn all<T: Copy + Sync>(values: &[T], holds: impl Fn(T) -> bool + Sync) -> bool {
    let hold = |some: &[T]| some.iter().fold(true, |so_far, value| so_far & holds(*value));
    in_all_parts(values.len(), |part| values[part].chunks(AT_A_TIME).all(hold))
}

/// How many of them are so.
fn sum(are: impl Iterator<Item = bool>) -> u64 {
    are.map(u64::from).sum()
}

/// Draws a tensor. Equal arguments give equal bits.
#[must_use]
pub fn generate(tensor: &ConcreteTensor, seed: u64, kind: InputKind) -> TensorData {
    let count = usize::try_from(tensor.elements()).unwrap_or(usize::MAX);
    let floats = |random: &mut ChaCha8Rng, values: &mut [f32]| floats(random, &tensor.distribution, kind, values);
    match tensor.dtype {
        DType::F32 => TensorData::F32(drawn(seed, count, floats)),
        DType::F64 => TensorData::F64(drawn(seed, count, rounded(floats, f64::from))),
        DType::F16 => TensorData::F16(drawn(seed, count, rounded(floats, f16_from_f32))),
        DType::Bf16 => TensorData::Bf16(drawn(seed, count, rounded(floats, bf16_from_f32))),
        // Integers are counts or indices: a scaled index would point outside.
        DType::I32 => {
            TensorData::I32(drawn(seed, count, |random, values| integers(random, &tensor.distribution, values)))
        }
    }
}

/// Draws in single precision, and writes in another.
fn rounded<T>(
    floats: impl Fn(&mut ChaCha8Rng, &mut [f32]),
    round: impl Fn(f32) -> T,
) -> impl Fn(&mut ChaCha8Rng, &mut [T]) {
    move |random, values| {
        let mut exact = vec![0.0; values.len()];
        floats(random, &mut exact);
        for (value, exact) in values.iter_mut().zip(exact) {
            *value = round(exact);
        }
    }
}

/// Draws so many values, part by part, large tensors on several threads. Each part has a stream of its own, so that the
/// values do not depend on the number of threads.
fn drawn<T: Element>(seed: u64, count: usize, draw: impl Fn(&mut ChaCha8Rng, &mut [T]) + Sync) -> Values<T> {
    let draw_part = |number: usize, place: &mut [T]| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(u64::try_from(number).unwrap_or(0));
        draw(&mut random, place);
    };
    let parts = count.div_ceil(PART);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(parts);
    Values::filled(count, |values| {
        if threads < 2 {
            return values.chunks_mut(PART).enumerate().for_each(|(number, place)| draw_part(number, place));
        }
        let share = parts.div_ceil(threads);
        std::thread::scope(|scope| {
            for (thread, shared) in values.chunks_mut(share * PART).enumerate() {
                let draw_part = &draw_part;
                scope.spawn(move || {
                    for (number, place) in shared.chunks_mut(PART).enumerate() {
                        draw_part(thread * share + number, place);
                    }
                });
            }
        });
    })
}

/// Draws all tensors of one kind, each from a seed of its own.
#[must_use]
pub fn generate_all(tensors: &[ConcreteTensor], seed: u64, kind: InputKind) -> Vec<TensorData> {
    let mut seeds = SecretSeeds::fixed(seed);
    tensors.iter().map(|tensor| generate(tensor, seeds.draw(), kind)).collect()
}

fn floats(random: &mut ChaCha8Rng, distribution: &Distribution, kind: InputKind, values: &mut [f32]) {
    let factor: f32 = match kind {
        InputKind::Declared | InputKind::SignsFlipped => 1.0,
        InputKind::ScaledUp => 3.0,
        InputKind::ScaledDown => 0.01,
    };
    match *distribution {
        #[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
        Distribution::Normal { mean, std } => {
            let (mean, std) = (mean as f32, std as f32);
            values.fill_with(|| {
                let standard: f32 = StandardNormal.sample(random);
                (mean + std * standard) * factor
            });
        }
        #[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
        Distribution::Uniform { low, high } => {
            let (low, width) = (low as f32, (high - low) as f32);
            values.fill_with(|| (low + width * random.random::<f32>()) * factor);
        }
        // What such values say, others would not: they are the same for every kind of inputs, as integers are.
        Distribution::Steps { low, high, step } => {
            #[expect(clippy::cast_possible_truncation, reason = "tensors are drawn in single precision")]
            return steps(random, (low, high, step), values, |value| value as f32);
        }
    }
    if kind == InputKind::SignsFlipped {
        for value in values {
            if random.random::<bool>() {
                *value = -*value;
            }
        }
    }
}

fn integers(random: &mut ChaCha8Rng, distribution: &Distribution, values: &mut [i32]) {
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    match *distribution {
        Distribution::Normal { mean, std } => match Normal::new(mean, std) {
            Ok(normal) => values.fill_with(|| normal.sample(random).round() as i32),
            Err(_) => values.fill(mean.round() as i32),
        },
        Distribution::Uniform { low, high } => match Uniform::new(low.ceil() as i32, high.ceil() as i32) {
            Ok(uniform) => values.fill_with(|| uniform.sample(random)),
            Err(_) => values.fill(low.ceil() as i32),
        },
        Distribution::Steps { low, high, step } => {
            steps(random, (low, high, step), values, |value| value.round() as i32);
        }
    }
}

/// Values of equal distances, each as likely as the others.
fn steps<T>(random: &mut ChaCha8Rng, (low, high, step): (f64, f64, f64), values: &mut [T], written: impl Fn(f64) -> T) {
    let count = Distribution::steps(low, high, step);
    #[expect(clippy::cast_precision_loss, reason = "a task has far fewer than 2^53 of them")]
    values.fill_with(|| written(low + step * random.random_range(0..count) as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, distribution: Distribution) -> ConcreteTensor {
        ConcreteTensor { name: "x".to_owned(), dtype, shape: vec![100, 200], distribution }
    }

    fn mean(data: &TensorData) -> f64 {
        data.as_f64().iter().sum::<f64>() / 20_000.0
    }

    #[test]
    fn equal_seeds_give_equal_bits_and_other_seeds_do_not() {
        let tensor = tensor(DType::F32, Distribution::default());
        let first = generate(&tensor, 7, InputKind::Declared);
        assert!(first.same_bits(&generate(&tensor, 7, InputKind::Declared)));
        assert!(!first.same_bits(&generate(&tensor, 8, InputKind::Declared)));
        assert_eq!(first.len(), 20_000);
    }

    #[test]
    fn values_follow_the_declared_distribution() {
        let normal =
            generate(&tensor(DType::F32, Distribution::Normal { mean: 2.0, std: 0.5 }), 1, InputKind::Declared);
        assert!((mean(&normal) - 2.0).abs() < 0.02);
        let variance = normal.as_f64().iter().map(|x| (x - 2.0).powi(2)).sum::<f64>() / 20_000.0;
        assert!((variance - 0.25).abs() < 0.02);
        let uniform =
            generate(&tensor(DType::F64, Distribution::Uniform { low: -1.0, high: 3.0 }), 1, InputKind::Declared);
        assert!((mean(&uniform) - 1.0).abs() < 0.05);
        assert!(uniform.as_f64().iter().all(|x| (-1.0..3.0).contains(x)));
    }

    #[test]
    fn integers_stay_in_their_range_whatever_the_kind() {
        let tensor = tensor(DType::I32, Distribution::Uniform { low: 0.0, high: 10.0 });
        for kind in [InputKind::Declared, InputKind::ScaledUp, InputKind::SignsFlipped] {
            let data = generate(&tensor, 3, kind);
            assert!(data.as_f64().iter().all(|x| (0.0..10.0).contains(x)));
            assert!(data.as_f64().iter().any(|x| *x > 8.5));
        }
    }

    #[test]
    fn steps_are_all_drawn_and_nothing_else_whatever_the_kind() {
        let labels = Distribution::Steps { low: -1.0, high: 3.0, step: 2.0 };
        for dtype in [DType::F32, DType::I32, DType::Bf16, DType::F64] {
            for kind in [InputKind::Declared, InputKind::ScaledUp, InputKind::ScaledDown, InputKind::SignsFlipped] {
                let drawn = generate(&tensor(dtype, labels.clone()), 3, kind);
                assert!(drawn.as_f64().iter().all(|value| [-1.0, 1.0].contains(value)), "{dtype:?} {kind:?}");
                assert!(mean(&drawn).abs() < 0.05, "{dtype:?} {kind:?}");
            }
        }
        let quarters = generate(
            &tensor(DType::F32, Distribution::Steps { low: 0.25, high: 1.0, step: 0.25 }),
            1,
            InputKind::Declared,
        );
        let values = quarters.as_f64();
        assert!(values.iter().all(|value| [0.25, 0.5, 0.75].contains(value)));
        assert!([0.25, 0.5, 0.75].iter().all(|step| values.contains(step)));
    }

    #[test]
    fn the_kinds_change_what_they_say() {
        let tensor = tensor(DType::F32, Distribution::Uniform { low: 1.0, high: 2.0 });
        let up = generate(&tensor, 5, InputKind::ScaledUp);
        assert!(up.as_f64().iter().all(|x| (3.0..=6.0).contains(x)));
        let down = generate(&tensor, 5, InputKind::ScaledDown);
        assert!(down.as_f64().iter().all(|x| (0.0099..=0.0201).contains(x)));
        let flipped = generate(&tensor, 5, InputKind::SignsFlipped);
        assert!(flipped.as_f64().iter().any(|x| *x < 0.0) && flipped.as_f64().iter().any(|x| *x > 0.0));
    }

    fn bytes_of(data: &TensorData, dtype: DType) -> Vec<u8> {
        let width = usize::try_from(dtype.size_bytes()).unwrap_or(1);
        let mut bytes = vec![0_u8; data.len() * width];
        data.copy_to_bytes(dtype, &mut bytes);
        assert!(data.equals_bytes(dtype, &bytes));
        bytes
    }

    #[test]
    fn bytes_and_values_are_the_same_thing() {
        for data in [
            TensorData::from(vec![1.5_f32, -0.0, f32::NAN]),
            TensorData::from(vec![1e300_f64, f64::INFINITY]),
            TensorData::I32(vec![i32::MIN, 7].into()),
            TensorData::F16(vec![0x3C00, 0x7E00, 0x8000].into()),
            TensorData::Bf16(vec![0x3F80, 0xFF80].into()),
        ] {
            let mut bytes = bytes_of(&data, data.dtype());
            assert!(TensorData::read(data.dtype(), &bytes).same_bits(&data));
            bytes[0] ^= 1;
            assert!(!data.equals_bytes(data.dtype(), &bytes));
        }
    }

    #[test]
    fn widening_keeps_the_value() {
        let widened = |data: TensorData| {
            let mut bytes = bytes_of(&data, DType::F64);
            let values = TensorData::read(DType::F64, &bytes);
            bytes[7] ^= 1;
            assert!(!data.equals_bytes(DType::F64, &bytes));
            values
        };
        assert_eq!(widened(TensorData::F32(vec![0.1].into())), TensorData::F64(vec![f64::from(0.1_f32)].into()));
        assert_eq!(
            widened(TensorData::F16(vec![0x3E00, 0x8001].into())),
            TensorData::F64(vec![1.5, -(2_f64.powi(-24))].into())
        );
        assert_eq!(widened(TensorData::Bf16(vec![0x3FC0].into())), TensorData::F64(vec![1.5].into()));
        assert!(TensorData::F16(vec![0x7BFF].into()).is_finite() && !TensorData::F16(vec![0xFC00].into()).is_finite());
        assert!(
            TensorData::Bf16(vec![0x7F7F].into()).is_finite() && !TensorData::Bf16(vec![0x7FC0].into()).is_finite()
        );
    }

    #[test]
    fn short_floats_are_drawn_as_long_ones_are_and_rounded() {
        let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
        let drawn = |dtype| generate(&tensor(dtype, distribution.clone()), 7, InputKind::Declared);
        let exact = drawn(DType::F32);
        for (dtype, relative) in [(DType::F16, 1.0 / 2048.0), (DType::Bf16, 1.0 / 256.0)] {
            let short = drawn(dtype);
            assert!(short.is_finite() && short.len() == exact.len());
            let near = |(short, exact): (&f64, &f64)| (short - exact).abs() <= exact.abs() * relative + 1e-7;
            assert!(short.as_f64().iter().zip(exact.as_f64().iter()).all(near), "{dtype:?}");
        }
    }

    #[test]
    fn of_a_pattern_in_short_floats_only_what_no_number_has_counts() {
        // As memory is poisoned: any bits, and a half that is no number in either format.
        let pattern = [0x12, 0x34, 0xFC, 0x7F, 0x12, 0x34, 0xFC, 0x7F];
        let count = |data: TensorData| {
            let bytes = bytes_of(&data, data.dtype());
            let (read, count) = TensorData::read_and_count(data.dtype(), &bytes, Some(pattern));
            assert!(read.same_bits(&data));
            count
        };
        let poisoned = TensorData::F16(vec![0x3412, 0x7FFC, 0x3412, 0x7FFC, 0x3412].into());
        assert_eq!(count(poisoned.clone()), 2);
        assert!(!poisoned.is_finite() && !TensorData::Bf16(vec![0x7FFC].into()).is_finite());
        assert_eq!(count(TensorData::Bf16(vec![0x3412; 4].into())), 0);
        // Long ones are all pattern.
        let word = u32::from_le_bytes([0x12, 0x34, 0xFC, 0x7F]);
        assert_eq!(count(TensorData::F32(vec![f32::from_bits(word), 1.0].into())), 1);
        assert_eq!(count(TensorData::I32(vec![word.cast_signed(), 1, 1].into())), 1);
        assert_eq!(count(TensorData::F64(vec![1.0, f64::from_le_bytes(pattern)].into())), 1);
    }
}
