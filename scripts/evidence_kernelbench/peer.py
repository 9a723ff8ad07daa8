"""KernelBench's own evaluation of programs, in a process of its own: `python peer.py CHECKOUT JOBS`, where JOBS is a file with a
list of {"name", "reference", "program", "build"}. One line of JSON for each. It is called as the checkout's scripts call it:
five trials, a hundred timed calls."""

import json
import os
import sys
import time
import traceback

import stand_ins

checkout, jobs = sys.argv[1:3]
stand_ins.import_from(checkout)

import torch  # noqa: E402
from kernelbench.eval import eval_kernel_against_ref  # noqa: E402

channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
with open(jobs, encoding="utf-8") as file:
    wanted = json.loads(file.read() or "[]")  # nothing: only whether all this can be loaded


def backend(program):
    """The `backend` argument: for Triton and CuTe the evaluation writes the program to a file, which their compilers need."""
    return next((name for name, module in (("triton", "import triton"), ("cute", "import cutlass")) if module in program), "cuda")


for job in wanted:
    began = time.monotonic()
    try:
        with open(job["reference"], encoding="utf-8") as file:
            reference = file.read()
        with open(job["program"], encoding="utf-8") as file:
            program = file.read()
        os.makedirs(job["build"], exist_ok=True)
        result = eval_kernel_against_ref(reference, program, num_correct_trials=5, num_perf_trials=100, measure_performance=True,
                                         build_dir=job["build"], device=torch.device("cuda:0"), backend=backend(program))
        if result is None:
            said = {"compiled": None, "correct": None, "note": "it gave no result (a lock of the compiler)"}
        else:
            said = {"compiled": result.compiled, "correct": result.correctness, "runtime_ms": result.runtime,
                    "reference_ms": getattr(result, "ref_runtime", None),
                    "note": {key: str(value)[:300] for key, value in result.metadata.items()}}
    except BaseException as error:
        said = {"compiled": None, "correct": None, "note": "".join(traceback.format_exception_only(type(error), error))[:400]}
    said.update(name=job["name"], seconds=round(time.monotonic() - began, 2))
    channel.write(json.dumps(said) + "\n")
    channel.flush()
