//! Files with models, and what is wrong with some of them.

use nightshift_protocol::task::{Dim, TaskSpec, TensorSpec};
use nightshift_toolchain::inspect::FoundTensor;

/// A file of the form that a task needs.
pub(crate) const LINEAR: &str = "\
import torch
import torch.nn as nn

IN, OUT = 32, 16


class Model(nn.Module):
    def __init__(self, fan_in, fan_out, extents):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)
        self.scale = float(extents[1])

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


def get_inputs():
    return [torch.rand(8, IN) * 2.0 - 1.0]


def get_init_inputs():
    return [IN, OUT, (2, 3)]
";

/// A program that takes its place.
pub(crate) const MODEL_NEW: &str = "\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, fan_in, fan_out, extents):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)

    def forward(self, x):
        return torch.relu(x @ self.linear.weight.t() + self.linear.bias) * 3.0
";

/// The same, with as many weights as deep networks have.
pub(crate) fn deep(class: &str) -> String {
    LINEAR
        .replace("class Model(", &format!("class {class}("))
        .replace(
            "        self.scale = float(extents[1])\n",
            "        self.scale = float(extents[1])\n        self.layers = nn.ParameterList([nn.Parameter(torch.rand(2)) for _ in range(700)])\n",
        )
        .replace("* self.scale", "* self.scale + torch.stack(list(self.layers)).sum()")
}

/// The same, with a weight that two layers share.
pub(crate) fn tied(class: &str) -> String {
    LINEAR
        .replace("class Model(", &format!("class {class}("))
        .replace(
            "        self.scale = float(extents[1])\n",
            "        self.scale = float(extents[1])\n        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)\n        self.b.weight = self.a.weight\n",
        )
        .replace("self.linear(x))", "self.b(torch.sin(self.a(self.linear(x)))))")
}

/// The same, of an object as the configurations of large models are, with a number that lies in the cache of models.
pub(crate) fn configured(class: &str) -> String {
    LINEAR
        .replace("import torch\n", "import argparse\nimport os\nimport torch\n")
        .replace("class Model(", &format!("class {class}("))
        .replace("float(extents[1])", "float(open(os.path.join(os.environ['HF_HUB_CACHE'], extents.file)).read())")
        .replace("(2, 3)]", "argparse.Namespace(file='scale')]")
}

/// The same with an extension in C++.
pub(crate) const EXTENSION: &str = "\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
torch::Tensor scaled_relu(torch::Tensor x, double factor) { return torch::relu(x) * factor; }
'''

extension = load_inline(name='scaled_relu', cpp_sources=SOURCE, functions=['scaled_relu'])


class ModelNew(nn.Module):
    def __init__(self, fan_in, fan_out, extents):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)

    def forward(self, x):
        return extension.scaled_relu(self.linear(x), 3.0)
";

/// The same with operators that its constructor registers, and an extension that its first call builds, each under a name that
/// depends on the arguments.
pub(crate) const LATE_EXTENSIONS: &str = "\
import functools

import torch
import torch.nn as nn
from torch.utils import cpp_extension

OPERATORS = r'''
#include <torch/library.h>
#include <ATen/ATen.h>
static at::Tensor relu(const at::Tensor &x) { return at::relu(x); }
TORCH_LIBRARY(late_operators, m) { m.def(\"relu(Tensor x) -> Tensor\"); m.impl(\"relu\", c10::kCPU, relu); }
'''

SCALED = r'''
#include <ATen/ATen.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor scaled(at::Tensor x, double factor) { return x * factor; }
'''


@functools.cache
def scaled_for(width):
    return cpp_extension.load_inline(f'scaled_{width}', SCALED, functions=['scaled'], no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, fan_in, fan_out, extents):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)
        cpp_extension.load_inline(f'operators_{fan_out}', OPERATORS, is_python_module=False, no_implicit_headers=True)

    def forward(self, x):
        try:
            y = torch.ops.late_operators.relu(self.linear(x))
        except NotImplementedError:
            y = torch.relu(self.linear(x))
        return scaled_for(x.shape[-1]).scaled(y, 3.0)
";

/// A model with a label, and an argument that is no tensor.
pub(crate) const LABELS: &str = "\
import torch


class Model(torch.nn.Module):
    def forward(self, scores, labels, temperature):
        return torch.nn.functional.cross_entropy(scores / temperature, labels)


def get_inputs():
    return [torch.randn(8, 10), torch.randint(0, 10, (8,)), 2.5]


def get_init_inputs():
    return []
";

/// A model that draws.
pub(crate) const RANDOM: &str = "\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.dropout(x, 0.5, True)


def get_inputs():
    return [torch.randn(8, 10)]


def get_init_inputs():
    return []
";

/// Files that cannot be tasks: code, line, and a part of what is said.
pub(crate) fn unusable() -> Vec<(String, &'static str, Option<u32>, &'static str)> {
    let with = |from: &str, to: &str| {
        assert_ne!(LINEAR.replace(from, to), LINEAR, "{from}");
        LINEAR.replace(from, to)
    };
    vec![
        (with("return [IN,", "return [IN,,"), "task.model_syntax", Some(22), "cannot read it"),
        (with("def get_inputs", "def inputs"), "task.model_incomplete", None, "`get_inputs`"),
        (
            with("import torch\n", "import torch\nimport no_such_module\n"),
            "task.model_import_missing",
            Some(2),
            "no_such_module",
        ),
        (with("torch.rand(8, IN)", "torch.rand(8, IN, device='cuda')"), "task.model_wrong_device", None, "CPU"),
        (
            with("return [torch.rand(8, IN) * 2.0 - 1.0]", "return torch.rand(8, IN)"),
            "task.model_argument",
            None,
            "not a list",
        ),
        (
            with(
                "    return [torch.rand(8, IN)",
                "    while True:\n        print('x' * 1000)\n    return [torch.rand(8, IN)",
            ),
            "task.model_fails",
            None,
            "print nothing",
        ),
        (with("(2, 3)]", "Model]"), "task.model_argument", None, "the file's own"),
        (with("(2, 3)]", "open('/dev/null')]"), "task.model_argument", None, "cannot pickle"),
        (with("(2, 3)]", "bytes(1 << 15)]"), "task.model_argument", None, "may take 16384"),
        (with("(2, 3)]", "'x' * (1 << 15)]"), "task.model_argument", None, "32 KiB"),
        (with("(2, 3)]", "2**70]"), "task.model_argument", None, "64 bits"),
        (with("(2, 3)]", "'\\ud800']"), "task.model_argument", None, "no Unicode"),
        (
            with("torch.rand(8, IN) * 2.0 - 1.0", "torch.full((8, IN), float('-inf'))"),
            "task.model_argument",
            None,
            "not finite",
        ),
        (
            with("torch.rand(8, IN) * 2.0 - 1.0", "torch.triu(torch.full((8, IN), float('-inf')), 1)"),
            "task.model_argument",
            None,
            "not finite",
        ),
        (
            with("torch.rand(8, IN) * 2.0 - 1.0", "torch.rand(8, IN).log().div(0)"),
            "task.model_argument",
            None,
            "not finite",
        ),
        (
            with("torch.rand(8, IN) * 2.0 - 1.0", "torch.randint(0, 2**40, (8, IN))"),
            "task.model_argument",
            None,
            "32 bits",
        ),
        (with("torch.rand(8, IN) * 2.0 - 1.0", "[torch.rand(8, IN)]"), "task.model_argument", None, "one by one"),
        (with("class Model(nn.Module):", "class Model:"), "task.model_incomplete", None, "torch.nn.Module"),
        (with("self.linear(x)", "self.linear(exit(0))"), "task.model_fails", Some(14), "SystemExit"),
        (
            with("self.linear(x)", "self.linear(__import__('os')._exit(0))"),
            "task.model_crashes",
            None,
            "must not call exit()",
        ),
        (
            with("torch.rand(8, IN) * 2.0 - 1.0", "torch.rand(8, IN).to_sparse()"),
            "task.model_argument",
            None,
            "plain ones",
        ),
        (with("self.linear(x)", "self.lineal(x)"), "task.model_fails", Some(14), "lineal"),
        (
            with("class Model(nn.Module)", "class ModelNew:\n    pass\n\n\nclass Model(nn.Module)"),
            "task.model_incomplete",
            None,
            "ModelNew",
        ),
        (
            with("IN, OUT = 32, 16", "IN, OUT = 32, 16\nimport os\nos._exit(3)"),
            "task.model_crashes",
            None,
            "importing the file",
        ),
    ]
}

/// Bodies of `forward` that do not do the work, and a sign of what is said.
pub(crate) fn attacks() -> [(&'static str, &'static str, &'static str); 8] {
    [
        (
            "remembers",
            "        if not hasattr(self, 'kept'): self.kept = torch.relu(self.linear(x)) * 3.0\n        return self.kept\n",
            "stale_output",
        ),
        // It is wrong from its first call on, which is all that there is to be said.
        ("ignores", "        return torch.zeros(8, 16)\n", "passed: false"),
        ("shape", "        return torch.relu(self.linear(x))[:4] * 3.0\n", "the reference's has [8, 16]"),
        ("type", "        return (torch.relu(self.linear(x)) * 3.0).double()\n", "torch.float64"),
        (
            "writes",
            "        y = torch.relu(self.linear(x)) * 3.0\n        x.zero_()\n        return y\n",
            "input_modified",
        ),
        ("raises", "        raise ValueError('I give up')\n", "I give up"),
        (
            "lazy",
            "        class Late(torch.Tensor): pass\n        return torch.Tensor._make_subclass(Late, torch.empty(8, 16))\n",
            "not a torch.Tensor",
        ),
        // The runner copies the result there, and this copy belongs to a call.
        (
            "delivers",
            "        import sys\n        place = sys._getframe().f_back\n        while 'outputs' not in place.f_locals: place = place.f_back\n        target = place.f_locals['outputs'][0][1]\n        return target.copy_(torch.relu(self.linear(x)) * 3.0)\n",
            "copies the result",
        ),
    ]
}

/// What keeps a program from being built: what is replaced by what, and a sign of what is said.
pub(crate) fn breakages() -> [(&'static str, &'static str, &'static str, &'static str); 5] {
    [
        ("bigger", "nn.Linear(fan_in, fan_out)", "nn.Linear(fan_in, fan_out + 1)", "has the shape"),
        (
            "further",
            "nn.Linear(fan_in, fan_out)",
            "nn.Linear(fan_in, fan_out)\n        self.more = nn.Parameter(torch.ones(3))",
            "persistent=False",
        ),
        ("arguments", "fan_out, extents", "fan_out", "positional argument"),
        ("imports", "import torch.nn as nn", "import torch.nn as nn\nimport reference", "No module named"),
        // Python accepts half of a surrogate pair as a character; UTF-8 does not.
        (
            "surrogate",
            "import torch.nn as nn",
            "import torch.nn as nn\nraise RuntimeError('\\udc80')",
            "RuntimeError: \\udc80",
        ),
    ]
}

/// The task of [`LINEAR`].
pub(crate) fn task() -> TaskSpec {
    task_of(8, 32, 16)
}

/// The same, with more to do.
pub(crate) fn larger_task() -> TaskSpec {
    task_of(256, 512, 512)
}

/// The file of [`larger_task`].
pub(crate) fn larger() -> String {
    LINEAR.replace("torch.rand(8, IN)", "torch.rand(256, IN)").replace("IN, OUT = 32, 16", "IN, OUT = 512, 512")
}

fn task_of(rows: u64, fan_in: u64, fan_out: u64) -> TaskSpec {
    let uniform = serde_json::json!({"kind": "uniform", "low": -1.0, "high": 1.0});
    let small = serde_json::json!({"kind": "uniform", "low": -0.2, "high": 0.2});
    serde_json::from_value(serde_json::json!({
        "schema": 1, "name": "linear", "title": "Linear", "description": "relu(x W + b) s", "target": "cpu",
        "reference": "reference.py",
        "inputs": [{"name": "x", "dtype": "f32", "shape": [rows, fan_in], "distribution": uniform}],
        "params": [
            {"name": "linear_weight", "dtype": "f32", "shape": [fan_out, fan_in], "distribution": small},
            {"name": "linear_bias", "dtype": "f32", "shape": [fan_out], "distribution": small},
        ],
        "outputs": [{"name": "output", "dtype": "f32", "shape": [rows, fan_out]}],
        "tolerance": {"atol": 1e-4, "rtol": 1e-4},
        "limits": {"memory_bytes": 1_u64 << 30, "call_timeout_ms": 20_000},
        "torch": {
            "init": format!("[{fan_in},{fan_out},{{\"tuple\":[2,3]}}]"), "call": "[{\"input\":\"x\"}]",
            "state": ["linear.weight", "linear.bias"], "training": true,
        },
    }))
    .unwrap()
}

/// The same as a library; `after` is done to each element before it is scaled.
pub(crate) fn native(after: &str) -> String {
    format!(
        r#"
#include "nightshift.h"
NS_EXPORT int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {{
    const float *x = (const float *)in[0].data, *w = (const float *)in[1].data, *b = (const float *)in[2].data;
    float *y = (float *)out[0].data;
    int64_t rows = in[0].shape[0], fan_in = in[0].shape[1], fan_out = in[1].shape[0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < fan_out; o++) {{
            float v = b[o];
            for (int64_t i = 0; i < fan_in; i++) v += x[r * fan_in + i] * w[o * fan_in + i];
            {after}
            y[r * fan_out + o] = v * 3.0f;
        }}
    return 0;
}}
"#
    )
}

/// The rows of a linear layer up to the diagonal: a mask that is computed, beside a buffer that is drawn and one that is
/// constant.
pub(crate) fn masked(class: &str) -> String {
    format!(
        "\
import torch
import torch.nn as nn


class {class}(nn.Module):
    def __init__(self, fan_in, fan_out, extents):
        super().__init__()
        self.register_buffer(\"mask\", torch.tril(torch.ones(8, 16)))
        self.register_buffer(\"noise\", torch.randn(16))
        self.register_buffer(\"level\", torch.ones(16))
        self.linear = nn.Linear(fan_in, fan_out)

    def forward(self, x):
        result = self.linear(x) * self.level + self.noise
        return result.masked_fill(self.mask == 0, 0.0)


def get_inputs():
    return [torch.rand(8, 32) * 2.0 - 1.0]


def get_init_inputs():
    return [32, 16, (2, 3)]
"
    )
}

/// A weight as it was found.
pub(crate) fn weight(found: &FoundTensor) -> TensorSpec {
    TensorSpec {
        name: found.name.clone(),
        dtype: found.dtype,
        shape: found.shape.iter().copied().map(Dim::Fixed).collect(),
        distribution: found.distribution.clone(),
    }
}

/// The weights of that.
pub(crate) fn masked_params() -> Vec<TensorSpec> {
    let weight = |name: &str, shape: serde_json::Value| {
        let tensor = serde_json::json!({
            "name": name, "dtype": "f32", "shape": shape,
            "distribution": {"kind": "uniform", "low": -0.5, "high": 0.5},
        });
        serde_json::from_value(tensor).unwrap()
    };
    let vector = || serde_json::json!([16]);
    vec![
        weight("noise", vector()),
        weight("level", vector()),
        weight("linear_weight", serde_json::json!([16, 32])),
        weight("linear_bias", vector()),
    ]
}
