//! How much of inputs and results a measurement keeps on the device.

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor};

/// What kept calls may take on the device before there are fewer of them, in bytes.
const PLENTY_BYTES: u64 = 64 << 20;

/// What guards and alignment add to tensors: a part of them, and bytes.
const GUARDS_PART: u64 = 64;
const GUARDS_BYTES: u64 = 4 << 20;

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
    /// Of calls with these tensors, where so many bytes of inputs and outputs are large.
    pub(crate) fn of(shapes: &ConcreteShapes, large_bytes: u64) -> Self {
        Self::of_calls(bytes_of(&shapes.inputs) + bytes_of(&shapes.outputs), large_bytes)
    }

    /// Where inputs and outputs of one call take so many bytes, and so many are large.
    fn of_calls(call_bytes: u64, large_bytes: u64) -> Self {
        if call_bytes >= large_bytes {
            return Self { sets: 2, kept: 1, of_rows: 1 };
        }
        let kept = usize::try_from(PLENTY_BYTES / call_bytes.max(1)).unwrap_or(usize::MAX).clamp(2, 8);
        Self { sets: 3, kept, of_rows: 4 }
    }

    /// Bytes that all of it takes on the device for each program; none where calls are large, whose tensors are allocated when they
    /// are needed.
    pub(crate) fn bytes(self, shapes: &ConcreteShapes, large_bytes: u64) -> u64 {
        self.bytes_of_calls(bytes_of(&shapes.inputs), bytes_of(&shapes.outputs), large_bytes)
    }

    fn bytes_of_calls(self, inputs_bytes: u64, outputs_bytes: u64, large_bytes: u64) -> u64 {
        let call_bytes = inputs_bytes + outputs_bytes;
        if call_bytes >= large_bytes {
            return 0;
        }
        let times = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let bytes = times(self.sets) * inputs_bytes + times(self.kept + self.of_rows) * call_bytes;
        bytes + bytes / GUARDS_PART + GUARDS_BYTES
    }

    /// Most calls that are looked at: those of samples, and one of a row.
    pub(crate) fn looks(self) -> usize {
        self.kept + 1
    }
}

fn bytes_of(tensors: &[ConcreteTensor]) -> u64 {
    tensors.iter().map(ConcreteTensor::size_bytes).sum()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::LARGE_CALL_BYTES;

    use super::*;

    #[test]
    fn all_of_it_is_held_at_once_unless_it_is_large() {
        let (inputs, outputs) = (128 << 20, 64 << 20);
        let stock = Stock::of_calls(inputs + outputs, LARGE_CALL_BYTES);
        let tensors = 3 * inputs + 6 * (inputs + outputs);
        let held = stock.bytes_of_calls(inputs, outputs, LARGE_CALL_BYTES);
        assert!(held > tensors && held < tensors + tensors / 32, "{held} bytes for {tensors}");
        assert_eq!(Stock::of_calls(1 << 30, LARGE_CALL_BYTES).bytes_of_calls(1 << 29, 1 << 29, LARGE_CALL_BYTES), 0);
    }

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
            assert_eq!(Stock::of_calls(bytes, LARGE_CALL_BYTES), Stock { sets, kept, of_rows }, "{bytes}");
        }
    }
}
