//! Where everything lies in the memory that parent and runner share.

use std::path::PathBuf;

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, TorchSpec};
use serde::{Deserialize, Serialize};

/// Bytes around every buffer in which a write is noticed.
pub(crate) const GUARD_BYTES: usize = 1024;

/// Alignment of every buffer, as the native contract promises.
const ALIGN_BYTES: usize = 64;

/// Scratch memory of a call, as the native contract promises (`NS_WORKSPACE_BYTES`).
pub(crate) const WORKSPACE_BYTES: usize = 32 * 1024 * 1024;

/// One buffer of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// First byte.
    pub(crate) offset: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

/// One tensor of the arena.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placed {
    /// Name.
    pub(crate) name: String,
    /// Element type.
    pub(crate) dtype: DType,
    /// Extents, outermost first.
    pub(crate) shape: Vec<i64>,
    /// Where it lies.
    pub(crate) region: Region,
}

/// What a runner needs to know. Nothing in it is secret, and no expected value is derived from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunnerPlan {
    /// The library.
    pub(crate) library: PathBuf,
    /// Libraries that it may rely on, loaded before it.
    pub(crate) libraries: Vec<PathBuf>,
    /// The shapes that it is called with, one at a time. All of them take the same memory.
    pub(crate) layouts: Vec<Layout>,
    /// Size of the arena in bytes.
    pub(crate) total_bytes: usize,
    /// Processor core to stay on.
    pub(crate) core: Option<usize>,
    /// Whether tensors live in the memory of a device.
    pub(crate) on_device: bool,
    /// Whether system calls that only the driver needs are refused once it has started.
    pub(crate) filtered: bool,
    /// How the library is run when it is a file of Python.
    pub(crate) torch: Option<TorchPlan>,
}

/// How a model of `PyTorch` is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TorchPlan {
    /// The Python.
    pub(crate) python: PathBuf,
    /// Where it finds bytecode, when not beside its sources.
    pub(crate) bytecode: Option<PathBuf>,
    /// Where models find what was fetched of them before.
    pub(crate) models: Option<PathBuf>,
    /// How the model is built and called.
    pub(crate) spec: TorchSpec,
    /// Whether it is called in double precision.
    pub(crate) double: bool,
    /// A folder of its own to write to: a program for a device may compile at its first call.
    pub(crate) scratch: Option<PathBuf>,
    /// The filter of system calls that is put in force once Python has started, as hexadecimal digits.
    pub(crate) filter: Option<String>,
}

/// Where the tensors of one shape lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Inputs.
    pub(crate) inputs: Vec<Placed>,
    /// Weights.
    pub(crate) params: Vec<Placed>,
    /// Outputs.
    pub(crate) outputs: Vec<Placed>,
    /// Scratch memory of a call. On a device only its guards are shared.
    pub(crate) workspace: Region,
    /// First byte behind everything.
    end: usize,
}

/// What of a program's tensors is in double precision, where the task has narrower floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubled {
    /// Nothing: it is called as the task says.
    Nothing,
    /// Its outputs.
    Outputs,
    /// Inputs and weights, too.
    Everything,
}

impl Layout {
    fn new(shapes: &ConcreteShapes, doubled: Doubled) -> Self {
        let mut end = 0_usize;
        let mut region = |size: usize| {
            let offset = (end + GUARD_BYTES).next_multiple_of(ALIGN_BYTES);
            end = offset + size + GUARD_BYTES;
            Region { offset, size }
        };
        let mut place = |tensors: &[ConcreteTensor], double: bool| -> Vec<Placed> {
            tensors
                .iter()
                .map(|tensor| {
                    let dtype = if double && tensor.dtype.is_widened() { DType::F64 } else { tensor.dtype };
                    let size = saturating(tensor.elements().saturating_mul(dtype.size_bytes()));
                    Placed {
                        name: tensor.name.clone(),
                        dtype,
                        shape: tensor.shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect(),
                        region: region(size),
                    }
                })
                .collect()
        };
        let given = doubled == Doubled::Everything;
        let (inputs, params) = (place(&shapes.inputs, given), place(&shapes.params, given));
        let outputs = place(&shapes.outputs, doubled != Doubled::Nothing);
        let workspace = region(WORKSPACE_BYTES);
        Self { inputs, params, outputs, workspace, end }
    }

    /// Every buffer, in the order of the arena.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (&str, Region)> {
        let tensors = self.inputs.iter().chain(&self.params).chain(&self.outputs);
        tensors.map(|placed| (placed.name.as_str(), placed.region)).chain([("workspace", self.workspace)])
    }
}

impl RunnerPlan {
    /// Lays out the tensors of every shape.
    pub(crate) fn new(library: PathBuf, shapes: &[ConcreteShapes], doubled: Doubled, core: Option<usize>) -> Self {
        let layouts: Vec<Layout> = shapes.iter().map(|shapes| Layout::new(shapes, doubled)).collect();
        let end = layouts.iter().map(|layout| layout.end).max().unwrap_or(0);
        let total_bytes = end.next_multiple_of(rustix::param::page_size()).max(rustix::param::page_size());
        Self {
            library,
            libraries: Vec::new(),
            layouts,
            total_bytes,
            core,
            on_device: false,
            filtered: false,
            torch: None,
        }
    }

    /// Size of the arena in bytes.
    pub(crate) fn arena_bytes(&self) -> u64 {
        u64::try_from(self.total_bytes).unwrap_or(u64::MAX)
    }
}

fn saturating(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::Distribution;

    use super::*;

    fn tensor(name: &str, elements: u64) -> ConcreteTensor {
        ConcreteTensor {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![elements],
            distribution: Distribution::default(),
        }
    }

    #[test]
    fn buffers_are_aligned_and_keep_their_guards_apart() {
        let shapes = ConcreteShapes {
            name: "default".to_owned(),
            inputs: vec![tensor("x", 3), tensor("y", 17)],
            params: vec![tensor("w", 1)],
            outputs: vec![tensor("z", 5)],
        };
        let larger = ConcreteShapes { inputs: vec![tensor("x", 1 << 18)], ..shapes.clone() };
        for doubled in [Doubled::Nothing, Doubled::Outputs, Doubled::Everything] {
            let plan = RunnerPlan::new(PathBuf::from("/lib"), &[shapes.clone(), larger.clone()], doubled, None);
            let layout = &plan.layouts[0];
            let mut end = 0;
            for (name, region) in layout.regions() {
                assert_eq!(region.offset % ALIGN_BYTES, 0, "{name}");
                assert!(region.offset >= end + GUARD_BYTES, "{name}");
                end = region.offset + region.size + GUARD_BYTES;
            }
            assert!(plan.total_bytes >= end);
            assert!(plan.total_bytes > 1 << 20, "the largest shape has to fit");
        }
    }
}
