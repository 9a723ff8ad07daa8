"""Tasks that only the evidence needs: programs whose cost is known, and scripts of any length."""

import json
import re
from pathlib import Path

ROUNDS = {"cuda": 16_000, "cpu": 2_000}
COUNT = {"cuda": 262_144, "cpu": 2_048}

CHAIN = {
    "cuda": r"""#include "nightshift.h"

#include <cuda_runtime.h>

// Each element goes through a chain of dependent multiply-adds. EXTRA
__global__ void chain(const ns_real *x, ns_real *y, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) {
        return;
    }
    const ns_real from = x[i];
    ns_real value = from;
#pragma unroll 16
    for (int round = 0; round < ROUNDS; ++round) {
        value = value * static_cast<ns_real>(-0.5) + from;
    }
    y[i] = value;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t count = inputs[0].shape[0];
    chain<<<static_cast<unsigned>((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const ns_real *>(inputs[0].data), static_cast<ns_real *>(outputs[0].data), count);
    return cudaGetLastError();
}
""",
    "cpu": r"""#include "nightshift.h"

// Each element goes through a chain of dependent multiply-adds. EXTRA
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    for (int64_t i = 0; i < inputs[0].shape[0]; ++i) {
        ns_real value = x[i];
        for (int round = 0; round < ROUNDS; ++round) {
            value = value * static_cast<ns_real>(-0.5) + x[i];
        }
        y[i] = value;
    }
    return 0;
}
""",
}


def chain(target: str, rounds: int, remark: str) -> str:
    """The chain with so many rounds."""
    return CHAIN[target].replace("ROUNDS", str(rounds)).replace("EXTRA", remark)


def write_chain(folder: Path, target: str, name: str, sources: list) -> Path:
    """A task whose reference is the chain, with a script of these programs."""
    suffix = "cu" if target == "cuda" else "cpp"
    text = f"""schema = 1
name = "{name}"
title = "A chain of multiply-adds for each element"
description = "y[i] is the end of the chain value = value * -0.5 + x[i], begun with x[i], after so many rounds that it stands still."
target = "{target}"
reference = "reference.{suffix}"
dims = {{ count = {COUNT[target]} }}
inputs = [{{ name = "x", dtype = "f32", shape = ["count"] }}]
outputs = [{{ name = "y", dtype = "f32", shape = ["count"] }}]
tolerance = {{ atol = 1e-6, rtol = 1e-6 }}
operators = [{{ name = "chain", class = "elementwise" }}]
variants = [{{ name = "odd", dims = {{ count = 1_001 }} }}]

[limits]
memory_bytes = 4_294_967_296

[goal]
max_attempts = {len(sources)}
max_replans = 0
replan_after_failed = 200
replan_after_stagnant = 200
"""
    tensor = {"dtype": "f32", "shape": ["count"], "layout": "row_major"}
    return write_script(folder / name, text, chain(target, ROUNDS[target], ""), suffix, "chain",
                        {"inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]}, sources)


def write_script(folder: Path, task: str, reference: str, suffix: str, scope: str, contract: dict, sources: list) -> Path:
    """A task folder with a script that gives these programs one after the other."""
    replies = folder / "replies"
    replies.mkdir(parents=True)
    (folder / "task.toml").write_text(task, encoding="utf-8")
    (folder / f"reference.{suffix}").write_text(reference, encoding="utf-8")
    plan = {"summary": "Measure.", "correctness_risks": [], "subtasks": [{
        "title": "Measure", "scope": scope.split(), "fusion_boundary": "One kernel.", "contract": contract,
        "methods": ["none"], "expected_bottleneck": "compute", "risk": "None."}]}
    (replies / "plan.md").write_text(f"```json\n{json.dumps(plan)}\n```\n", encoding="utf-8")
    diagnosis = {"bound": "compute", "critical_issue": "This script has another program.", "modification": "The next one.",
                 "metrics": [], "expected_gain": 1.0, "route": "optimize"}
    for number, source in enumerate(sources, start=1):
        stem = f"subtask1.attempt{number}"
        (replies / f"{stem}.write_code.md").write_text(f"The next program.\n\n```cpp\n{source}```\n", encoding="utf-8")
        (replies / f"{stem}.diagnose.md").write_text(f"```json\n{json.dumps(diagnosis)}\n```\n", encoding="utf-8")
    return folder


SMALL = {"cuda": "cuda_row_softmax", "cpu": "row_softmax"}
"""An example whose call takes some microseconds on a GPU."""


def last_program(night) -> str:
    """The last program of the small example's script."""
    last = sorted((night.given.examples / SMALL[night.target]).glob("replies/*.write_code.md"))[-1]
    return re.search(r"^```cpp\n(.*?)^```$", last.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL).group(1)


def small_reference(night, remark: str) -> str:
    """The reference of the small example with a remark."""
    suffix = "cu" if night.target == "cuda" else "cpp"
    text = (night.given.examples / SMALL[night.target] / f"reference.{suffix}").read_text(encoding="utf-8")
    return f"// {remark}\n{text}" if remark else text


def write_small(night, name: str, sources: list) -> Path:
    """A copy of the small example under another name, without a target and with a script of these programs."""
    task = (night.given.examples / SMALL[night.target] / "task.toml").read_text(encoding="utf-8")
    task = re.sub(r"^name = .*$", f'name = "{name}"', task, count=1, flags=re.MULTILINE)
    goal = (f"[goal]\nmax_attempts = {len(sources)}\nmax_replans = 0\nreplan_after_failed = 200\n"
            "replan_after_stagnant = 200\n")
    task = re.sub(r"^\[goal\].*\Z", goal, task, flags=re.MULTILINE | re.DOTALL)
    tensor = {"dtype": "f32", "shape": ["rows", "cols"], "layout": "row_major"}
    return write_script(night.folder / name, task, small_reference(night, ""), "cu" if night.target == "cuda" else "cpp",
                        "row_max exp_and_sum normalize",
                        {"inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]}, sources)
