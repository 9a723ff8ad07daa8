//! How much of inputs and results a measurement keeps on the device.

/// What kept calls may take on the device before there are fewer of them, in bytes.
const PLENTY_BYTES: u64 = 64 << 20;

/// Inputs and outputs of one call from which on only what cannot be done without is kept, in bytes.
pub(crate) const LARGE_BYTES: u64 = 1 << 30;

/// What a measurement keeps on the device, for each of its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stock {
    /// Sets of inputs that every timed call draws from: its inputs are a mixture of two.
    pub(crate) sets: usize,
    /// Most timed calls that are compared afterwards.
    pub(crate) kept: usize,
    /// Last calls of a row that are kept; one of them is compared.
    pub(crate) of_rows: usize,
}

impl Stock {
    /// Where inputs and outputs of one call take so many bytes, and so many are large.
    pub(crate) fn of(call_bytes: u64, large_bytes: u64) -> Self {
        if call_bytes >= large_bytes {
            return Self { sets: 2, kept: 1, of_rows: 1 };
        }
        let kept = usize::try_from(PLENTY_BYTES / call_bytes.max(1)).unwrap_or(usize::MAX).clamp(2, 8);
        Self { sets: 3, kept, of_rows: 4 }
    }

    /// Most calls that are looked at: those of samples, and one of a row.
    pub(crate) fn looks(self) -> usize {
        self.kept + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_a_call_is_the_less_of_it_is_kept_and_never_nothing() {
        for (bytes, sets, kept, of_rows) in [
            (0, 3, 8, 4),
            (1 << 20, 3, 8, 4),
            (16 << 20, 3, 4, 4),
            (512 << 20, 3, 2, 4),
            (1 << 30, 2, 1, 1),
            (u64::MAX, 2, 1, 1),
        ] {
            assert_eq!(Stock::of(bytes, LARGE_BYTES), Stock { sets, kept, of_rows }, "{bytes}");
        }
    }
}
