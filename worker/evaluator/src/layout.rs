//! The layout of the memory that the evaluator shares with a program's process.

use std::cell::Cell;

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, TorchSpec};
use serde::{Deserialize, Serialize};

use crate::element::Element;

/// Bytes before and behind every buffer in which a write is noticed.
pub const GUARD_BYTES: usize = 1024;

/// Alignment of every buffer in bytes: what the native contract promises for device memory.
const ALIGN_BYTES: usize = 256;

/// Scratch memory of a call in bytes, as the native contract promises (`NS_WORKSPACE_BYTES`).
pub const WORKSPACE_BYTES: usize = 32 * 1024 * 1024;

/// One buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// First byte.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// One tensor in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// Name.
    pub name: String,
    /// Type in the contract.
    pub dtype: DType,
    /// Representation in memory.
    pub element: Element,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Location in memory.
    pub region: Region,
}

impl Placed {
    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.region.size / self.element.size_bytes()
    }
}

/// Inputs and outputs of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallBuffers {
    /// Inputs, in the order of the call.
    pub inputs: Vec<Placed>,
    /// Outputs, in the order of the call.
    pub outputs: Vec<Placed>,
}

/// The memory of a program at one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Weights.
    pub params: Vec<Placed>,
    /// Scratch memory, which all calls share.
    pub workspace: Region,
    /// Buffers of as many calls as may be queued at once; at least one.
    pub calls: Vec<CallBuffers>,
    /// Whether the outputs of a call lie where its inputs do. Such buffers have no guards.
    pub reuses_inputs: bool,
    /// Size in bytes.
    pub total_bytes: usize,
}

/// The representation of a program's tensors.
#[derive(Debug, Clone, Copy)]
pub struct Representation<'a> {
    /// Floats are 64 bits wide: the program gives the truth.
    pub double: bool,
    /// Types of a model of `PyTorch` that differ from those of the contract.
    pub torch: Option<&'a TorchSpec>,
    /// Whether the program has scratch memory of the contract.
    pub workspace: bool,
    /// Whether outputs take the place of inputs: a runner copies them there once the program has read all inputs.
    pub reuses_inputs: bool,
}

impl Representation<'_> {
    fn input(&self, tensor: &ConcreteTensor) -> Element {
        let torch = self.torch.and_then(|torch| torch.types.get(&tensor.name));
        let own = torch.and_then(|name| Element::of_torch(name)).unwrap_or_else(|| Element::of(tensor.dtype));
        if self.double && own.is_float() { Element::F64 } else { own }
    }

    fn output(&self, tensor: &ConcreteTensor) -> Element {
        if self.double && tensor.dtype.is_widened() { Element::F64 } else { Element::of(tensor.dtype) }
    }
}

impl Layout {
    /// Lays out the tensors of one shape for so many queued calls.
    #[must_use]
    pub fn new(shapes: &ConcreteShapes, representation: Representation<'_>, calls: usize) -> Self {
        let end = Cell::new(0_usize);
        let place = |size: usize| {
            let offset = (end.get() + GUARD_BYTES).next_multiple_of(ALIGN_BYTES);
            end.set(offset.saturating_add(size).saturating_add(GUARD_BYTES));
            Region { offset, size }
        };
        let all = |tensors: &[ConcreteTensor], element: &dyn Fn(&ConcreteTensor) -> Element| -> Vec<Placed> {
            let placed = |tensor: &ConcreteTensor| {
                let element = element(tensor);
                let elements = usize::try_from(tensor.elements()).unwrap_or(usize::MAX);
                Placed {
                    name: tensor.name.clone(),
                    dtype: tensor.dtype,
                    element,
                    shape: tensor.shape.clone(),
                    region: place(elements.saturating_mul(element.size_bytes())),
                }
            };
            tensors.iter().map(placed).collect()
        };
        let (input, output) = (
            |tensor: &ConcreteTensor| representation.input(tensor),
            |tensor: &ConcreteTensor| representation.output(tensor),
        );
        let params = all(&shapes.params, &input);
        let buffers_of_call = |_| {
            let start = end.get();
            let inputs = all(&shapes.inputs, &input);
            let end_of_inputs = end.get();
            if representation.reuses_inputs {
                end.set(start);
            }
            let outputs = all(&shapes.outputs, &output);
            end.set(end.get().max(end_of_inputs));
            CallBuffers { inputs, outputs }
        };
        let calls = (0..calls.max(1)).map(buffers_of_call).collect();
        let workspace = place(if representation.workspace { WORKSPACE_BYTES } else { 0 });
        Self { params, workspace, calls, reuses_inputs: representation.reuses_inputs, total_bytes: end.get() }
    }

    /// Returns the buffers of the call of this number.
    #[must_use]
    pub fn call(&self, number: usize) -> &CallBuffers {
        // Every layout has at least one call, and the numbers of calls wrap around.
        &self.calls[number % self.calls.len()]
    }

    /// Returns every buffer that has guards, with its name.
    pub fn regions(&self) -> impl Iterator<Item = (&str, Region)> {
        let calls = if self.reuses_inputs { &[][..] } else { &self.calls };
        let of_calls = calls.iter().flat_map(|call| call.inputs.iter().chain(&call.outputs));
        let tensors = self.params.iter().chain(of_calls).map(|placed| (placed.name.as_str(), placed.region));
        tensors.chain(std::iter::once(("workspace", self.workspace)))
    }
}

/// Returns the guards before and behind a buffer.
pub(crate) fn guards(region: Region) -> [Region; 2] {
    [
        Region { offset: region.offset - GUARD_BYTES, size: GUARD_BYTES },
        Region { offset: region.offset + region.size, size: GUARD_BYTES },
    ]
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::Distribution;

    use super::*;

    fn tensor(name: &str, elements: u64, dtype: DType) -> ConcreteTensor {
        ConcreteTensor { name: name.to_owned(), dtype, shape: vec![elements], distribution: Distribution::default() }
    }

    #[test]
    fn buffers_are_aligned_and_their_guards_do_not_overlap() {
        let shapes = ConcreteShapes {
            name: "default".to_owned(),
            inputs: vec![tensor("x", 3, DType::F32), tensor("i", 17, DType::I32)],
            params: vec![tensor("w", 1, DType::Bf16)],
            outputs: vec![tensor("z", 5, DType::F32)],
        };
        for double in [false, true] {
            let layout =
                Layout::new(&shapes, Representation { double, torch: None, workspace: true, reuses_inputs: false }, 3);
            let mut end = 0;
            for (name, region) in layout.regions() {
                assert_eq!(region.offset % ALIGN_BYTES, 0, "{name}");
                assert!(region.offset >= end + GUARD_BYTES, "{name}");
                end = region.offset + region.size + GUARD_BYTES;
            }
            assert_eq!(layout.total_bytes, end);
            assert_eq!(layout.regions().count(), 1 + 3 * 3 + 1);
            assert_eq!(layout.call(4), &layout.calls[1]);
            let widths: Vec<usize> = layout.calls[0].inputs.iter().map(|placed| placed.element.size_bytes()).collect();
            assert_eq!(widths, if double { [8, 4] } else { [4, 4] });
        }
    }

    #[test]
    fn outputs_in_the_place_of_inputs_touch_nothing_else() {
        for (inputs, outputs) in [(300, 20), (20, 300)] {
            let shapes = ConcreteShapes {
                name: "default".to_owned(),
                inputs: vec![tensor("x", inputs, DType::F32), tensor("i", 17, DType::I32)],
                params: vec![tensor("w", 5, DType::F32)],
                outputs: vec![tensor("y", outputs, DType::F32), tensor("z", 3, DType::F32)],
            };
            let of = |reuses_inputs| {
                let representation = Representation { double: true, torch: None, workspace: true, reuses_inputs };
                Layout::new(&shapes, representation, 1)
            };
            let (layout, apart) = (of(true), of(false));
            let end = |place: &Placed| place.region.offset + place.region.size;
            let call = layout.call(0);
            assert_eq!(call.outputs[0].region.offset, call.inputs[0].region.offset);
            for tensors in [&call.inputs, &call.outputs] {
                assert!(tensors[0].region.offset >= end(&layout.params[0]) + GUARD_BYTES);
                assert!(end(&tensors[0]) < tensors[1].region.offset, "tensors of a kind are apart");
                assert!(end(&tensors[1]) + GUARD_BYTES <= layout.workspace.offset - GUARD_BYTES);
            }
            let names: Vec<&str> = layout.regions().map(|(name, _)| name).collect();
            assert_eq!(names, ["w", "workspace"], "guards of others would lie in tensors");
            assert!(layout.total_bytes < apart.total_bytes);
        }
    }
}
