//! The task's contract as a header of C++, and as a literal of Python.

use std::fmt::Write as _;

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, Distribution, TaskSpec};

use super::quote;

/// What the header declares before its data.
const TYPES: &str = "\
#pragma once

#include \"nightshift.h\"

#include <cstdint>
#include <vector>

namespace contract {

// How the values of an input are drawn: normal with mean and deviation, uniform from the first up to the second number, or
// in steps from the first on below the second one.
enum class Values { normal, uniform, steps };

struct Tensor {
    const char *name;
    int32_t dtype;
    std::vector<int64_t> shape;
    Values values;
    double first;
    double second;
    double step;
};

struct Shapes {
    const char *name;
    std::vector<Tensor> inputs;
    std::vector<Tensor> params;
    std::vector<Tensor> outputs;
};

";

/// `contract.h`.
pub(super) fn header(spec: &TaskSpec, shapes: &[ConcreteShapes]) -> String {
    let mut text =
        format!("// The contract of the task {}: its tensors, their shapes, and the tolerance.\n{TYPES}", spec.name);
    let tolerance = spec.effective_tolerance();
    // Writing to a text does not fail.
    let _ = writeln!(text, "inline constexpr const char *TASK = {};", quote::cpp(&spec.name));
    let _ = writeln!(text, "inline constexpr double ATOL = {:?};", tolerance.atol);
    let _ = writeln!(text, "inline constexpr double RTOL = {:?};", tolerance.rtol);
    let _ = writeln!(text, "inline constexpr double REFERENCE_ERROR_FACTOR = {:?};", tolerance.reference_error_factor);
    text.push_str("\n// The first shape is the one that is timed.\ninline const std::vector<Shapes> SHAPES = {\n");
    for shapes in shapes {
        let _ = writeln!(text, "    {{{},", quote::cpp(&shapes.name));
        for (tensors, end) in [(&shapes.inputs, ","), (&shapes.params, ","), (&shapes.outputs, "},")] {
            let listed: Vec<String> = tensors.iter().map(cpp_tensor).collect();
            let _ = writeln!(text, "     {{{}}}{end}", listed.join(",\n      "));
        }
    }
    text.push_str("};\n\n}  // namespace contract\n");
    text
}

fn cpp_tensor(tensor: &ConcreteTensor) -> String {
    let (values, first, second, step) = values(&tensor.distribution);
    let dtype = match tensor.dtype {
        DType::F32 => "NS_F32",
        DType::F64 => "NS_F64",
        DType::I32 => "NS_I32",
        DType::F16 => "NS_F16",
        DType::Bf16 => "NS_BF16",
    };
    let name = quote::cpp(&tensor.name);
    let shape = listed(&tensor.shape);
    format!("{{{name}, {dtype}, {{{shape}}}, Values::{values}, {first:?}, {second:?}, {step:?}}}")
}

/// The shapes as a dictionary of Python.
pub(super) fn python(shapes: &[ConcreteShapes]) -> String {
    let mut text = String::from("{\n");
    for shapes in shapes {
        let _ = writeln!(text, "    {}: {{", quote::python(&shapes.name));
        for (name, tensors) in [("inputs", &shapes.inputs), ("params", &shapes.params), ("outputs", &shapes.outputs)] {
            let _ = writeln!(text, "        \"{name}\": [");
            for tensor in tensors {
                let _ = writeln!(text, "            {},", python_tensor(tensor));
            }
            text.push_str("        ],\n");
        }
        text.push_str("    },\n");
    }
    text.push('}');
    text
}

fn python_tensor(tensor: &ConcreteTensor) -> String {
    let (values, first, second, step) = values(&tensor.distribution);
    let dtype = match tensor.dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I32 => "int32",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
    };
    let comma = if tensor.shape.len() == 1 { "," } else { "" };
    let (name, shape) = (quote::python(&tensor.name), listed(&tensor.shape));
    format!("({name}, \"{dtype}\", ({shape}{comma}), \"{values}\", {first:?}, {second:?}, {step:?})")
}

fn listed(shape: &[u64]) -> String {
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// The kind of a distribution, its two numbers and its step.
fn values(distribution: &Distribution) -> (&'static str, f64, f64, f64) {
    match *distribution {
        Distribution::Normal { mean, std } => ("normal", mean, std, 0.0),
        Distribution::Uniform { low, high } => ("uniform", low, high, 0.0),
        Distribution::Steps { low, high, step } => ("steps", low, high, step),
    }
}
