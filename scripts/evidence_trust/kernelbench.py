"""What KernelBench's own evaluation says of programs, as its scripts call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).resolve().parent.parent / "evidence_kernelbench" / "peer.py"
LOADING_S = 40
"""Seconds for loading PyTorch and the evaluation."""
LIMIT_S = {True: 150, False: 15}
"""Seconds for each program, with an extension that is compiled and without."""


def reason_not_to(checkout, out):
    """Why the evaluation cannot be asked; none when it can."""
    jobs = out / "jobs.json"
    jobs.write_text("[]")
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    done = subprocess.run([python, str(PEER), str(checkout), str(jobs)], capture_output=True, timeout=120, check=False)
    return done.stderr.decode(errors="replace").strip()[-400:] if done.returncode else None


def judge(checkout, task, program, device, out, facts):
    """The entry of one program. Each has a process of its own: one that breaks the device's context would take the others along."""
    jobs = out / f"jobs-{program['kind']}-{program['name']}.json"
    jobs.write_text(json.dumps([{"name": program["name"], "reference": str(task), "program": str(program["path"]),
                                 "build": str(out / "builds" / program["name"])}]))
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    limit_s = LOADING_S + LIMIT_S["cpp_extension" in program["path"].read_text(errors="replace")]
    environment = dict(os.environ, **({"CUDA_VISIBLE_DEVICES": device} if device else {}))
    command = [python, str(PEER), str(checkout), str(jobs)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit_s, check=False, env=environment)
        lines, reason = done.stdout, f"its process ended: {done.stderr.decode(errors='replace').strip()[-200:]}"
    except subprocess.TimeoutExpired as expired:
        lines, reason = expired.stdout or b"", "it did not come to its end"
    finally:
        jobs.unlink()
    said = [line for line in lines.decode(errors="replace").split("\n")[:-1] if line.startswith("{")]
    answer = json.loads(said[0]) if said else {"correct": None, "note": reason}
    # Results name no folder of this machine.
    answer["note"] = str(answer.get("note")).replace(str(checkout.resolve()), "CHECKOUT").replace(str(checkout), "CHECKOUT")
    return entry(program, answer, facts)


def entry(program, answer, facts):
    runtime, reference = answer.get("runtime_ms") or 0, answer.get("reference_ms") or 0
    ratio = reference / runtime if runtime > 0 and reference > 0 else None
    verdict = "not judged" if answer["correct"] is None else "wrong" if not answer["correct"] else "correct"
    return dict(facts(program), part="kernelbench", verdict=verdict, codes=[], seconds=answer.get("seconds"),
                speedup={"estimate": ratio} if ratio else None, message=str(answer.get("note"))[:300])
