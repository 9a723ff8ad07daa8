//! Representations of tensor elements in memory.

use half::{bf16, f16};
use nightshift_protocol::task::DType;
use serde::{Deserialize, Serialize};

/// Representation of one element in memory, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Two's complement, 32 bits.
    I32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an IEEE 754 binary32.
    Bf16,
    /// Two's complement, 64 bits.
    I64,
    /// Two's complement, 16 bits.
    I16,
    /// Two's complement, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl Element {
    /// Returns the representation of a type of the contract.
    #[must_use]
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
            DType::I32 => Self::I32,
            DType::F16 => Self::F16,
            DType::Bf16 => Self::Bf16,
        }
    }

    /// Returns the representation of a type of `PyTorch`, by its name without `torch.`; none for other types.
    #[must_use]
    pub fn of_torch(name: &str) -> Option<Self> {
        Some(match name {
            "float32" => Self::F32,
            "float64" => Self::F64,
            "int32" => Self::I32,
            "float16" => Self::F16,
            "bfloat16" => Self::Bf16,
            "int64" => Self::I64,
            "int16" => Self::I16,
            "int8" => Self::I8,
            "uint8" => Self::U8,
            "bool" => Self::Bool,
            _ => return None,
        })
    }

    /// Size of one element in bytes.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Returns whether it is a floating-point number.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// The number by which the kernels of a device know it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F64 => 1,
            Self::I32 => 2,
            Self::F16 => 3,
            Self::Bf16 => 4,
            Self::I64 => 5,
            Self::I16 => 6,
            Self::I8 => 7,
            Self::U8 => 8,
            Self::Bool => 9,
        }
    }

    /// Distance between neighbouring values relative to their size; 0 for integers.
    pub(crate) fn relative_step(self) -> f64 {
        match self {
            Self::F64 => f64::EPSILON,
            Self::F32 => f64::from(f32::EPSILON),
            Self::F16 => 2.0_f64.powi(-10),
            Self::Bf16 => 2.0_f64.powi(-7),
            _ => 0.0,
        }
    }

    /// Reads elements as 64-bit floats into `values`. `bytes` holds as many elements.
    pub(crate) fn widen(self, bytes: &[u8], values: &mut [f64]) {
        match self {
            Self::F32 => each(bytes, values, |bytes| f64::from(f32::from_le_bytes(bytes))),
            Self::F64 => each(bytes, values, f64::from_le_bytes),
            Self::I32 => each(bytes, values, |bytes| f64::from(i32::from_le_bytes(bytes))),
            Self::F16 => each(bytes, values, |bytes| f16::from_le_bytes(bytes).to_f64()),
            Self::Bf16 => each(bytes, values, |bytes| bf16::from_le_bytes(bytes).to_f64()),
            #[expect(clippy::cast_precision_loss, reason = "values of tasks are far below 2^53")]
            Self::I64 => each(bytes, values, |bytes| i64::from_le_bytes(bytes) as f64),
            Self::I16 => each(bytes, values, |bytes| f64::from(i16::from_le_bytes(bytes))),
            Self::I8 => each(bytes, values, |bytes| f64::from(i8::from_le_bytes(bytes))),
            Self::U8 | Self::Bool => each(bytes, values, |[byte]: [u8; 1]| f64::from(byte)),
        }
    }

    /// Writes values that were drawn in single precision, or whole numbers, into `bytes`.
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers are drawn in the range of the type")]
    pub(crate) fn narrow(self, values: &[f64], bytes: &mut [u8]) {
        match self {
            Self::F32 => put(values, bytes, |value| (value as f32).to_le_bytes()),
            Self::F64 => put(values, bytes, f64::to_le_bytes),
            Self::I32 => put(values, bytes, |value| (value as i32).to_le_bytes()),
            Self::F16 => put(values, bytes, |value| f16::from_f32(value as f32).to_le_bytes()),
            Self::Bf16 => put(values, bytes, |value| bf16::from_f32(value as f32).to_le_bytes()),
            Self::I64 => put(values, bytes, |value| (value as i64).to_le_bytes()),
            Self::I16 => put(values, bytes, |value| (value as i16).to_le_bytes()),
            Self::I8 => put(values, bytes, |value| (value as i8).to_le_bytes()),
            #[expect(clippy::cast_sign_loss, reason = "whole numbers are drawn in the range of the type")]
            Self::U8 => put(values, bytes, |value| [value as u8]),
            Self::Bool => put(values, bytes, |value| [u8::from(value.abs() > 0.0)]),
        }
    }
}

fn each<const WIDTH: usize>(bytes: &[u8], values: &mut [f64], read: impl Fn([u8; WIDTH]) -> f64) {
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
        *value = read(*bytes);
    }
}

fn put<const WIDTH: usize>(values: &[f64], bytes: &mut [u8], write: impl Fn(f64) -> [u8; WIDTH]) {
    for (bytes, value) in bytes.as_chunks_mut::<WIDTH>().0.iter_mut().zip(values) {
        *bytes = write(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Element; 10] = [
        Element::F32,
        Element::F64,
        Element::I32,
        Element::F16,
        Element::Bf16,
        Element::I64,
        Element::I16,
        Element::I8,
        Element::U8,
        Element::Bool,
    ];

    #[test]
    fn values_survive_their_representation() {
        for element in ALL {
            let values = [0.0, 1.0, 0.0, 1.0];
            let mut bytes = vec![0; element.size_bytes() * values.len()];
            element.narrow(&values, &mut bytes);
            let mut read = [0.5; 4];
            element.widen(&bytes, &mut read);
            assert!(read.iter().zip(values).all(|(read, value)| (read - value).abs() < f64::EPSILON), "{element:?}");
        }
    }

    #[test]
    fn every_representation_has_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<u32> = ALL.into_iter().map(Element::code).collect();
        assert_eq!(codes.len(), ALL.len());
    }

    #[test]
    fn short_floats_round_to_the_nearest() {
        for (element, value, expected) in [
            (Element::F16, 1.0 + 1.0 / 2048.0, 1.0),
            (Element::Bf16, 1.0 + 3.0 / 256.0, 1.015_625),
            (Element::F16, 65_520.0, f64::INFINITY),
        ] {
            let mut bytes = [0; 2];
            element.narrow(&[value], &mut bytes);
            let mut read = [0.0];
            element.widen(&bytes, &mut read);
            assert!(
                (read[0] - expected).abs() < 1e-9 || read[0].is_infinite() && expected.is_infinite(),
                "{element:?} {value}"
            );
        }
    }
}
