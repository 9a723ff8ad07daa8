//! A task whose programs differ in speed by powers of two, so that no noise changes who wins.

use std::path::{Path, PathBuf};

/// Passes of the reference. Tests write programs with at most a quarter as many, and compare programs that differ by a factor
/// of four or more: on a machine that does other work a measured speedup can be wrong by a factor of two.
const REFERENCE_PASSES: u32 = 128;

/// The program: `passes` evaluations of an exponential for each element, then the result. Input and value pass through
/// volatile variables: no compiler can move the exponential out of the loop.
pub(crate) fn program(before: &str, passes: &str, result: &str) -> String {
    format!(
        r#"#include "nightshift.h"
#include <cmath>
{before}
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {{
    const auto *in = static_cast<const ns_real *>(inputs[0].data);
    auto *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t n = inputs[0].shape[0];
    for (int64_t i = 0; i < n; ++i) {{
        volatile ns_real x = in[i];
        volatile ns_real value = 0;
        for (int pass = 0; pass < {passes}; ++pass) value = std::exp(-x * x);
        out[i] = {result};
    }}
    return 0;
}}
"#
    )
}

/// Writes the task of so many elements, with its reference, and gives the folder.
pub(crate) fn write_task(parent: &Path, name: &str, elements: usize, max_attempts: usize) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the task");
    let spec = format!(
        r#"schema = 1
name = "{name}"
title = "Gaussian of each element"
description = "out[i] = exp(-in[i] * in[i])"
target = "cpu"
reference = "reference.cpp"

[dims]
n = {elements}

[[inputs]]
name = "in"
dtype = "f32"
shape = ["n"]

[[outputs]]
name = "out"
dtype = "f32"
shape = ["n"]

[tolerance]
atol = 1e-6
rtol = 1e-5

[[operators]]
name = "gaussian"
class = "elementwise"

[goal]
max_attempts = {max_attempts}
replan_after_stagnant = 100
"#
    );
    std::fs::write(folder.join("task.toml"), spec).expect("task.toml");
    let reference = program("", &REFERENCE_PASSES.to_string(), "value");
    std::fs::write(folder.join("reference.cpp"), reference).expect("reference.cpp");
    folder
}
