//! 16-bit floats by their bits: IEEE 754 binary16, and bfloat16, the upper half of a binary32.

/// The nearest binary16, ties to even; what is too large is infinite.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "every result fits into 16 bits")]
pub(super) fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7C00;
    }
    if magnitude < 0x3880_0000 {
        // Without a leading one: so many times the smallest number, 2^-24. Scaling by a power of two is exact.
        return sign | (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16;
    }
    let rounded = magnitude + 0x0FFF + ((magnitude >> 13) & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}

/// The same number in 32 bits.
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1F), u32::from(bits & 0x03FF));
    match exponent {
        0 => {
            let magnitude = f32::from(bits & 0x03FF) / 16_777_216.0;
            if sign == 0 { magnitude } else { -magnitude }
        }
        0x1F => f32::from_bits(sign | 0x7F80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest bfloat16, ties to even.
pub(super) fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x0040;
    }
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// The same number in 32 bits.
pub(super) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_16_bits_survives_32() {
        for bits in 0..=u16::MAX {
            for (wide, back) in [
                (f16_to_f32(bits), f16_from_f32 as fn(f32) -> u16),
                (bf16_to_f32(bits), bf16_from_f32 as fn(f32) -> u16),
            ] {
                if wide.is_nan() {
                    assert!(back(wide) & 0x7F80 >= 0x7C00, "{bits:#x}");
                } else {
                    assert_eq!(back(wide), bits);
                }
            }
        }
    }

    #[test]
    fn known_numbers_have_known_bits() {
        for (value, f16, bf16) in [
            (1.0, 0x3C00, 0x3F80),
            (-2.0, 0xC000, 0xC000),
            (0.1, 0x2E66, 0x3DCD),
            (65_504.0, 0x7BFF, 0x4780),
            (f32::INFINITY, 0x7C00, 0x7F80),
            (-0.0, 0x8000, 0x8000),
        ] {
            assert_eq!((f16_from_f32(value), bf16_from_f32(value)), (f16, bf16), "{value}");
        }
    }

    #[test]
    fn what_lies_between_goes_to_the_nearest_and_ties_to_even() {
        // The largest number, and where the next one would be.
        assert_eq!((f16_from_f32(65_519.0), f16_from_f32(65_520.0)), (0x7BFF, 0x7C00));
        let smallest = 1.0 / 16_777_216.0;
        let of_smallest = |times: f32| f16_from_f32(smallest * times);
        assert_eq!([0.5, 0.75, 1.0, 1.5, 2.5].map(of_smallest), [0, 1, 1, 2, 2]);
        // 1 + 2^-11 lies in the middle of two, 1 + 3 * 2^-11 as well.
        assert_eq!((f16_from_f32(1.0 + 1.0 / 2048.0), f16_from_f32(1.0 + 3.0 / 2048.0)), (0x3C00, 0x3C02));
        assert_eq!((bf16_from_f32(1.0 + 1.0 / 256.0), bf16_from_f32(1.0 + 3.0 / 256.0)), (0x3F80, 0x3F82));
    }
}
