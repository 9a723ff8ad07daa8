"""What KernelBench's own evaluation says of programs, as its scripts call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).resolve().parent.parent / "evidence_kernelbench" / "peer.py"
LIMIT_S = 240
"""Seconds for each program; its evaluation runs programs in its own process, so one that hangs or ends takes the rest along."""


def judge(checkout, task, batch, out, facts):
    """One entry for each program."""
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    for program in batch:
        jobs = out / "jobs.json"
        jobs.write_text(json.dumps([{"name": program["name"], "reference": str(task), "program": str(program["path"]),
                                     "build": str(out / "builds" / program["name"])}]))
        try:
            said = subprocess.run([python, str(PEER), str(checkout), str(jobs)], capture_output=True, text=True, timeout=LIMIT_S,
                                  check=False)
            lines = said.stdout.splitlines()
            answer = json.loads(lines[-1]) if lines else {"correct": None, "note": said.stderr.strip()[-300:]}
        except subprocess.TimeoutExpired:
            answer = {"correct": None, "note": "it did not come to an end"}
        runtime, reference = answer.get("runtime_ms") or 0, answer.get("reference_ms") or 0
        ratio = reference / runtime if runtime > 0 and reference > 0 else None
        verdict = "not judged" if answer["correct"] is None else "wrong" if not answer["correct"] else "correct"
        yield dict(facts(program), part="kernelbench", verdict=verdict, codes=[], seconds=answer.get("seconds"),
                   speedup={"estimate": ratio} if ratio else None, message=str(answer.get("note"))[:300])
