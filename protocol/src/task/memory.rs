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

/// Bytes of the tensors of one call, at the largest of a task's shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryDemand {
    target: Target,
    inputs: u64,
    params: u64,
    outputs: u64,
}

impl MemoryDemand {
    /// What a task's steps work on.
    ///
    /// # Errors
    /// When a shape cannot be used.
    pub fn of(spec: &TaskSpec) -> Result<Self, ShapeError> {
        let sum = |tensors: &[ConcreteTensor]| tensors.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
        let of_shapes = |shapes: &ConcreteShapes| Self {
            target: spec.target,
            inputs: sum(&shapes.inputs),
            params: sum(&shapes.params),
            outputs: sum(&shapes.outputs),
        };
        let all = spec.all_shapes()?;
        let nothing = Self { target: spec.target, inputs: 0, params: 0, outputs: 0 };
        Ok(all.iter().map(of_shapes).max_by_key(|demand| demand.on_host()).unwrap_or(nothing))
    }

    /// Memory of the machine in bytes, beside that of the processes themselves. Inputs: two or three sets, another one in the
    /// making, and where three processes share them. Outputs: of reference and program in single precision and of the
    /// truth in double, where they are shared, once more while they are compared, and of the first question, with which
    /// others are. Where there is no GPU, what the processes compute with is there, too.
    #[must_use]
    pub fn on_host(self) -> u64 {
        match self.target {
            Target::Cuda => self.inputs * 7 + self.params * 6 + self.outputs * 15,
            Target::Cpu => self.inputs * 9 + self.params * 8 + self.outputs * 21,
        }
    }

    /// Memory of the GPU in bytes. Each of two programs: inputs in place and as two or three sets, inputs and outputs of the calls
    /// that are kept (two, or six where calls are not large), outputs of the call that is made. The truth: its inputs and outputs,
    /// in double precision, and what it computes with.
    #[must_use]
    pub fn on_gpu(self) -> u64 {
        let (inputs, outputs) = if self.inputs + self.outputs >= LARGE_CALL_BYTES { (13, 12) } else { (23, 20) };
        self.inputs * inputs + self.params * 6 + self.outputs * outputs
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
        MemoryDemand { target, inputs, params: 0, outputs }
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
        assert!(below.on_gpu() > 21 * GIB && from.on_gpu() < 13 * GIB);
    }

    #[test]
    fn what_is_small_asks_for_nothing() {
        assert_eq!(demand(Target::Cuda, GIB / 8, GIB / 8).of_device(), None);
        assert_eq!(demand(Target::Cpu, 0, 0).of_device(), None);
    }
}
