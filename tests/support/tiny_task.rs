//! A task whose candidates differ in speed by powers of two, so that no noise changes who wins.
//!
//! Input and result pass through volatile variables: no compiler can move the exponential out of the loop.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The program: `passes` evaluations of an exponential per element that the compiler may not merge, then the result.
fn program(passes: u32) -> String {
    format!(
        r#"#include "nightshift.h"
#include <cmath>

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {{
    const auto *in = static_cast<const ns_real *>(inputs[0].data);
    auto *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t n = inputs[0].shape[0];
    for (int64_t i = 0; i < n; ++i) {{
        volatile ns_real x = in[i];
        volatile ns_real value = 0;
        for (int pass = 0; pass < {passes}; ++pass) value = std::exp(-x * x);
        out[i] = value;
    }}
    return 0;
}}
"#
    )
}

/// Passes of the reference.
const REFERENCE_PASSES: u32 = 32;
/// Writes the task folder and gives its path.
pub(crate) fn write(parent: &Path, name: &str, attempt_passes: &[u32]) -> PathBuf {
    let folder = parent.join(name);
    let replies = folder.join("replies");
    std::fs::create_dir_all(&replies).expect("a folder for the task");
    let attempts = attempt_passes.len();
    let spec = format!(
        r#"schema = 1
name = "{name}"
title = "Gaussian of each element"
description = "out[i] = exp(-in[i] * in[i])"
target = "cpu"
reference = "reference.cpp"

[dims]
n = 4096

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
max_attempts = {attempts}
replan_after_stagnant = 100
"#
    );
    std::fs::write(folder.join("task.toml"), spec).expect("task.toml");
    std::fs::write(folder.join("reference.cpp"), program(REFERENCE_PASSES)).expect("reference.cpp");
    let plan = r#"```json
{"summary": "Evaluate the exponential fewer times.",
 "subtasks": [{"title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program"}]}
```
"#;
    std::fs::write(replies.join("plan.md"), plan).expect("the plan");
    for (index, passes) in attempt_passes.iter().enumerate() {
        let mut reply = String::new();
        write!(reply, "The next program.\n\n```cpp\n{}```\n", program(*passes)).expect("text");
        std::fs::write(replies.join(format!("subtask1.attempt{}.write_code.md", index + 1)), reply).expect("a reply");
    }
    folder
}
