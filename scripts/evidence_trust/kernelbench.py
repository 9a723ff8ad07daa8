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
"""Seconds for each program, with an extension that is compiled and without. Programs run in the evaluation's own process: one that hangs
or ends it takes the rest along, which are then asked anew."""


def reason_not_to(checkout, out):
    """Why the evaluation cannot be asked; none when it can."""
    jobs = out / "jobs.json"
    jobs.write_text("[]")
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    done = subprocess.run([python, str(PEER), str(checkout), str(jobs)], capture_output=True, timeout=120, check=False)
    return done.stderr.decode(errors="replace").strip()[-400:] if done.returncode else None


def judge(checkout, task, batch, out, facts):
    """One entry for each program."""
    rest = list(batch)
    while rest:
        said, reason = ask(checkout, task, rest, out)
        for program, line in zip(rest, said):
            yield entry(program, json.loads(line), facts)
        rest = rest[len(said):]
        if rest and reason:
            yield entry(rest.pop(0), {"correct": None, "note": reason}, facts)


def ask(checkout, task, programs, out):
    """Lines of its answers, and why there are not more."""
    jobs = out / f"jobs-{task.stem}.json"
    jobs.write_text(json.dumps([{"name": program["name"], "reference": str(task), "program": str(program["path"]),
                                 "build": str(out / "builds" / program["name"])} for program in programs]))
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    limit_s = LOADING_S + sum(LIMIT_S["cpp_extension" in program["path"].read_text(errors="replace")] for program in programs)
    try:
        done = subprocess.run([python, str(PEER), str(checkout), str(jobs)], capture_output=True, timeout=limit_s, check=False)
        lines, reason = done.stdout, f"its process ended: {done.stderr.decode(errors='replace').strip()[-200:]}"
    except subprocess.TimeoutExpired as expired:
        lines, reason = expired.stdout or b"", "it did not come to its end"
    said = [line for line in lines.decode(errors="replace").split("\n")[:-1] if line.startswith("{")]
    return said, reason


def entry(program, answer, facts):
    runtime, reference = answer.get("runtime_ms") or 0, answer.get("reference_ms") or 0
    ratio = reference / runtime if runtime > 0 and reference > 0 else None
    verdict = "not judged" if answer["correct"] is None else "wrong" if not answer["correct"] else "correct"
    return dict(facts(program), part="kernelbench", verdict=verdict, codes=[], seconds=answer.get("seconds"),
                speedup={"estimate": ratio} if ratio else None, message=str(answer.get("note"))[:300])
