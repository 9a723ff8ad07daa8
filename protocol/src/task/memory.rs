//! How much memory judging programs of a task takes.

use super::{ConcreteShapes, ConcreteTensor, ShapeError, Target, TaskSpec};

/// Share of a memory that steps may take: the rest is for everything else.
const USABLE_PERCENT: u64 = 92;

/// From this much on a step asks for a device with as much: what takes less, every device has.
const LARGE_BYTES: u64 = 8 << 30;

/// In such steps: equal needs of many tasks are one queue.
const STEP_BYTES: u64 = 1 << 30;

/// Most calls of one timed window.
pub const MAX_CALLS_OF_A_WINDOW: u64 = 64;

/// Inputs and outputs of one call from which on a measurement has few pairs, in bytes.
pub const LARGE_CALL_BYTES: u64 = 1 << 30;

/// Inputs and outputs that the calls of one timed window have together, where one call does not have more, in bytes.
pub const MAX_ROTATED_BYTES: u64 = 512 << 20;

/// Tensors of a task from which on a trusted program gives back, after each call, the memory that it keeps for its next one, in bytes.
/// The outputs of a trusted model then take the place of its inputs.
pub const TRIMMED_BYTES: u64 = 4 << 30;

/// Bytes of one call from which a check has buffers for one call of a candidate, and not for two.
pub const ONE_CALL_BYTES: u64 = TRIMMED_BYTES / 2;

/// What every program has beside its tensors, in bytes: a workspace, and the evaluator's own buffers.
const FIXED_BYTES: u64 = 512 << 20;

/// Memory that judging programs of a task takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryDemand {
    target: Target,
    tensors: u64,
    on_host: u64,
}

impl MemoryDemand {
    /// Returns what a task's steps work on: the most that one of its shapes takes.
    ///
    /// # Errors
    /// When a shape cannot be used.
    pub fn of(spec: &TaskSpec) -> Result<Self, ShapeError> {
        let sum = |tensors: &[ConcreteTensor]| tensors.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
        let all = spec.all_shapes()?;
        let nothing = Self { target: spec.target, tensors: 0, on_host: 0 };
        let of_shapes = |shapes: &ConcreteShapes| {
            let bytes = (sum(&shapes.inputs), sum(&shapes.params), sum(&shapes.outputs));
            Self::of_call(spec.target, spec.torch.is_some(), bytes)
        };
        Ok(all.iter().map(of_shapes).fold(nothing, Self::and))
    }

    /// What is enough for both.
    fn and(self, other: Self) -> Self {
        Self { on_host: self.on_host.max(other.on_host), tensors: self.tensors.max(other.tensors), ..self }
    }

    fn of_call(target: Target, is_model: bool, (inputs, params, outputs): (u64, u64, u64)) -> Self {
        let call = inputs + outputs;
        let (in_place, results) = if target == Target::Cuda && is_model && call + params >= TRIMMED_BYTES {
            // Inputs and outputs of the candidate; the larger of both of the reference, and twice as wide of the truth; weights as below.
            // Results of candidate and truth that are not in place yet, and outputs that are kept. On the host, values that were drawn
            // are kept, too.
            (call + inputs.max(outputs) * 3 + params * 8, outputs * 4)
        } else {
            // Inputs and outputs of candidate, reference and the truth in double precision; a model's own weights; and results that are
            // not in place yet, of all three, and outputs that are kept.
            let further = if call + params >= ONE_CALL_BYTES { 0 } else { call };
            let results = if call + params >= TRIMMED_BYTES { outputs * 3 } else { outputs * 6 };
            (inputs * 4 + params * 8 + outputs * 4 + further, results)
        };
        let check = in_place + results;
        // Candidate and baseline with the calls of a window; before that the truth with the baseline.
        let window = call.max(MAX_ROTATED_BYTES.min(call.saturating_mul(MAX_CALLS_OF_A_WINDOW)));
        let timed = (2 * window + 2 * outputs + params * 4).max(window + outputs + 2 * call + 2 * outputs + params * 6);
        let tensors = check.max(timed) + FIXED_BYTES;
        let on_host = match target {
            // A call that is written down for profilers.
            Target::Cuda => inputs + params + inputs.max(params),
            Target::Cpu => tensors,
        };
        Self { target, tensors, on_host }
    }

    /// Memory of the machine in bytes, beside that of the processes themselves.
    #[must_use]
    pub fn on_host(self) -> u64 {
        self.on_host
    }

    /// Memory of the GPU in bytes.
    #[must_use]
    pub fn on_gpu(self) -> u64 {
        self.tensors
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
        MemoryDemand::of_call(target, false, (inputs, 0, outputs))
    }

    fn of_model(inputs: u64, outputs: u64) -> MemoryDemand {
        MemoryDemand::of_call(Target::Cuda, true, (inputs, 0, outputs))
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
    fn tensors_of_twelve_gibibytes_fit_a_gpu_of_eighty() {
        for (inputs, outputs) in [(6 * GIB, 6 * GIB), (12 * GIB, 0), (8 * GIB, 4 * GIB)] {
            let demand = demand(Target::Cuda, inputs, outputs);
            assert!(demand.on_gpu() <= usable_memory(79 * GIB), "{demand:?}");
            assert!(demand.on_host() <= 2 * inputs, "{demand:?}");
        }
    }

    /// Level 1 of KernelBench, problems 34 to 39: as many bytes in as out.
    #[test]
    fn the_largest_models_of_kernelbench_fit_a_gpu_of_eighty_gibibytes() {
        let (images, rows) = (112 * 64 * 512 * 512 * 4, 32_768 * 65_535 * 4);
        for (problem, bytes) in [(34, images), (35, images), (36, images), (37, images), (38, rows), (39, rows)] {
            let demand = of_model(bytes, bytes);
            // An H100 has 79.2 GiB or a little more.
            assert!(demand.on_gpu() <= usable_memory(GIB / 10 * 792), "1/{problem}: {demand:?}");
            assert!(demand.on_gpu() <= 73 * GIB, "1/{problem}: {demand:?}");
        }
    }

    #[test]
    fn a_small_model_takes_what_other_programs_take() {
        for (inputs, outputs) in [(GIB, 1), (GIB, GIB), (2 * GIB, GIB)] {
            assert_eq!(of_model(inputs, outputs), demand(Target::Cuda, inputs, outputs));
        }
        assert!(of_model(3 * GIB, GIB).on_gpu() < demand(Target::Cuda, 3 * GIB, GIB).on_gpu());
    }

    #[test]
    fn short_calls_take_a_window_of_many() {
        assert_eq!(demand(Target::Cuda, 1000, 0).on_gpu(), FIXED_BYTES + 2 * 64 * 1000);
        assert_eq!(demand(Target::Cuda, 100 << 20, 0).on_gpu(), FIXED_BYTES + 2 * MAX_ROTATED_BYTES);
    }

    #[test]
    fn what_is_enough_for_two_shapes_is_enough_for_each() {
        let (left, right) = (demand(Target::Cuda, GIB, 3 * GIB), demand(Target::Cuda, 3 * GIB, GIB / 2));
        for both in [left.and(right), right.and(left)] {
            assert!(both.on_gpu() >= left.on_gpu().max(right.on_gpu()));
            assert!(both.on_host() >= left.on_host().max(right.on_host()));
        }
    }

    #[test]
    fn what_is_small_asks_for_nothing() {
        assert_eq!(demand(Target::Cuda, GIB / 8, GIB / 8).of_device(), None);
        assert_eq!(demand(Target::Cpu, 0, 0).of_device(), None);
    }
}
