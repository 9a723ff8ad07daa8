//! How much memory judging programs of a task takes.

use super::{ConcreteShapes, ConcreteTensor, ShapeError, Target, TaskSpec};

/// Share of a memory that steps may take: the rest is for everything else.
const USABLE_PERCENT: u64 = 92;

/// From this much on a step asks for a device with as much: what takes less, every device has.
const LARGE_BYTES: u64 = 8 << 30;

/// In such steps: equal needs of many tasks are one queue.
const STEP_BYTES: u64 = 1 << 30;

/// Inputs and outputs of one call from which on a measurement keeps only what it cannot do without, in bytes.
pub const LARGE_CALL_BYTES: u64 = 1 << 30;

/// Most that a sample of several calls has for the inputs and outputs of those beyond the first, in bytes.
pub const MAX_ROTATED_BYTES: u64 = 512 << 20;

/// What a program has at most beyond what is counted for all, where calls are short or small: 47 further calls of a sample, and six
/// more that are kept.
const MORE_BYTES: u64 = MAX_ROTATED_BYTES + (64 << 20);
const MORE_CALLS: u64 = 53;

/// Memory that judging programs of a task takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryDemand {
    target: Target,
    on_host: u64,
    on_gpu: u64,
}

impl MemoryDemand {
    /// What a task's steps work on: the most that one of its shapes takes.
    ///
    /// # Errors
    /// When a shape cannot be used.
    pub fn of(spec: &TaskSpec) -> Result<Self, ShapeError> {
        let sum = |tensors: &[ConcreteTensor]| tensors.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
        let all = spec.all_shapes()?;
        let nothing = Self { target: spec.target, on_host: 0, on_gpu: 0 };
        let of_shapes = |shapes: &ConcreteShapes| {
            Self::of_call(spec.target, sum(&shapes.inputs), sum(&shapes.params), sum(&shapes.outputs))
        };
        Ok(all.iter().map(of_shapes).fold(nothing, Self::and))
    }

    /// What is enough for both.
    fn and(self, other: Self) -> Self {
        Self { on_host: self.on_host.max(other.on_host), on_gpu: self.on_gpu.max(other.on_gpu), ..self }
    }

    fn of_call(target: Target, inputs: u64, params: u64, outputs: u64) -> Self {
        let on_host = match target {
            Target::Cuda => inputs * 7 + params * 6 + outputs * 15,
            Target::Cpu => inputs * 9 + params * 8 + outputs * 21,
        };
        let call = inputs + outputs;
        let of_calls = if call >= LARGE_CALL_BYTES {
            inputs * 13 + outputs * 12
        } else {
            inputs * 23 + outputs * 20 + 2 * MORE_BYTES.min(call * MORE_CALLS)
        };
        Self { target, on_host, on_gpu: of_calls + params * 6 }
    }

    /// Memory of the machine in bytes, beside that of the processes themselves. Inputs: two or three sets, another one in the
    /// making, and where three processes share them. Outputs: of reference and program in single precision and of the
    /// truth in double, where they are shared, once more while they are compared, and of the first question, with which
    /// others are. Where there is no GPU, what the processes compute with is there, too.
    #[must_use]
    pub fn on_host(self) -> u64 {
        self.on_host
    }

    /// Memory of the GPU in bytes. Each of two programs: inputs in place and as two or three sets, inputs and outputs of the calls
    /// that are kept (two, or six where calls are not large, and more where they are small), and of the calls of a sample, outputs of the
    /// call that is made. The truth: its inputs and outputs, in double precision, and what it computes with.
    #[must_use]
    pub fn on_gpu(self) -> u64 {
        self.on_gpu
    }

    /// Memory that a device needs for it, where not every device has as much: that of a GPU, or for the `cpu` target that of the
    /// machine.
    #[must_use]
    pub fn of_device(self) -> Option<u64> {
        let bytes = if self.target == Target::Cuda { self.on_gpu() } else { self.on_host() };
        let whole = (bytes / USABLE_PERCENT).saturating_mul(100);
        (whole > LARGE_BYTES).then(|| whole.next_multiple_of(STEP_BYTES))
    }
}

/// Of so many bytes of memory those that steps may take together.
#[must_use]
pub fn usable_memory(bytes: u64) -> u64 {
    bytes / 100 * USABLE_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn demand(target: Target, inputs: u64, outputs: u64) -> MemoryDemand {
        MemoryDemand::of_call(target, inputs, 0, outputs)
    }

    #[test]
    fn a_step_asks_for_a_device_on_which_it_will_not_be_refused() {
        for inputs in [0, GIB / 2, GIB, 3 * GIB] {
            for target in [Target::Cpu, Target::Cuda] {
                let demand = demand(target, inputs, GIB);
                let bytes = if target == Target::Cuda { demand.on_gpu() } else { demand.on_host() };
                let Some(device) = demand.of_device() else { panic!("{demand:?} needs a large device") };
                assert!(usable_memory(device) >= bytes, "{demand:?}: {device}");
                assert!(device <= bytes * 100 / USABLE_PERCENT + STEP_BYTES, "{demand:?}: {device}");
            }
        }
    }

    #[test]
    fn of_calls_that_are_not_large_more_is_kept() {
        let (below, from) = (demand(Target::Cuda, GIB / 2, GIB / 2 - 1), demand(Target::Cuda, GIB / 2, GIB / 2));
        assert!(below.on_gpu() > 22 * GIB && from.on_gpu() < 13 * GIB);
        assert_eq!(demand(Target::Cuda, 1000, 0).on_gpu(), 1000 * (23 + 2 * MORE_CALLS));
    }

    #[test]
    fn a_smaller_shape_may_take_more_of_the_gpu() {
        let (smaller, larger) = (demand(Target::Cuda, GIB / 2 - 1, GIB / 2), demand(Target::Cuda, GIB / 2, GIB / 2));
        assert!(smaller.on_gpu() > larger.on_gpu() && smaller.on_host() < larger.on_host());
        for both in [smaller.and(larger), larger.and(smaller)] {
            assert_eq!((both.on_gpu(), both.on_host()), (smaller.on_gpu(), larger.on_host()));
        }
    }

    #[test]
    fn what_is_small_asks_for_nothing() {
        assert_eq!(demand(Target::Cuda, GIB / 8, GIB / 8).of_device(), None);
        assert_eq!(demand(Target::Cpu, 0, 0).of_device(), None);
    }
}
