"""How many attempts are verified in an hour, with several in flight."""

import collections
import time

from .campaign import task as task_name
from .night import Failure, Night, attempts_of, log
from .tasks import last_program, write_small

NAME = "evidence: throughput"
ATTEMPTS = 150
"""Programs in each script: more than any machine gets through."""
WARM_UP_S = 90
"""How long the runs may take until each has a first verdict."""


def measure(night: Night) -> dict:
    profiled = not night.without_profiles()
    folders = [_task(night, number) for number in range(1, night.given.in_flight + 1)]
    night.start()
    night.begin("submit", "run", *map(str, folders), "--model", "scripted", "--name", NAME, "--new", "--exit")
    campaign = night.campaign_named(NAME)
    night.wait_for(campaign, lambda runs: len(runs) == len(folders) and all(run["digest"]["attempts"] >= 2 for run in runs),
                   "a first verdict of every run", WARM_UP_S)
    began = time.time() * 1000
    log(f"every run has a verdict; counting for {night.given.throughput_s:.0f} s")
    time.sleep(max(0.0, min(night.given.throughput_s, night.given.until - time.monotonic() - 20)))
    ended = time.time() * 1000
    night.command("cancel", campaign)
    exported = night.export(campaign, "throughput.json")
    verified, kinds, parts, devices = [], {}, {}, collections.Counter()
    for task, attempt, steps in attempts_of(exported):
        end = (steps.get("measure") or {}).get("finished_at")
        if end is not None and began <= end < ended and attempt.get("measurement"):
            verified.append((task, attempt))
            devices.update(gpu["uuid"] for gpu in attempt["measurement"]["machine"].get("gpus", []))
            for step, field in (("check", "check"), ("measure", "measurement")):
                for part in (attempt.get(field) or {}).get("cost", []):
                    parts.setdefault(step, {}).setdefault(part["name"], []).append(part["ms"])
        for kind, step in steps.items():
            if step.get("finished_at") and began <= step["finished_at"] < ended and step.get("started_at"):
                kinds.setdefault(kind, []).append(step["finished_at"] - step["started_at"])
    seconds = (ended - began) / 1000
    if seconds < 5:
        raise Failure("no time was left to count in")
    open_tasks = {task_name(run) for run in exported["runs"]}
    return {
        "in_flight": len(open_tasks),
        "profiled": profiled,
        "seconds_counted": round(seconds, 1),
        "verified": len(verified),
        "devices": dict(sorted(devices.items())),
        "wrong": sum(not attempt["outcome"].startswith("correct") for _, attempt in verified),
        "built_from_cache": sum(bool((attempt.get("build") or {}).get("cached")) for _, attempt in verified),
        "per_hour": round(len(verified) / seconds * 3600),
        "parts": {step: {name: round(sum(times) / len(times)) for name, times in named.items()} for step, named in parts.items()},
        "steps": {kind: {"count": len(times), "mean_ms": round(sum(times) / len(times))} for kind, times in sorted(kinds.items())},
    }



def _task(night: Night, number: int):
    """A small example with a script that gives its last program again and again, each time with another remark."""
    program = last_program(night)
    return write_small(night, f"softmax_{number}",
                       [f"// Program {n} of run {number}.\n{program}" for n in range(1, ATTEMPTS + 1)])
