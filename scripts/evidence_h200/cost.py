"""What one attempt costs: one small program alone on the machine, with empty caches, every step by its own clock."""

import statistics

from .night import Failure, Night, attempts_of, over, took_ms

EXAMPLE = {"cuda": "cuda_row_softmax", "cpu": "holt_smoothing"}
NAME = "evidence: cost"
LIMIT_S = 150
VERDICT = ("build", "check", "measure")
"""From source text to verdict."""


def measure(night: Night) -> dict:
    night.start()
    night.begin("submit", "run", EXAMPLE[night.target], "--model", "scripted", "--name", NAME, "--new", "--exit")
    campaign = night.campaign_named(NAME)
    complete = night.wait_or_stop(campaign, over, "the end of the run", LIMIT_S)
    exported = night.export(campaign, "cost.json")
    rows = []
    for task, attempt, steps in attempts_of(exported):
        measurement = attempt.get("measurement") or {}
        tiers = {tier["tool"]: tier.get("wall_ms") for tier in (attempt.get("profile") or {}).get("tiers", []) if tier["used"]}
        times = {kind: took_ms(step) for kind, step in steps.items()}
        whole = [times.get(kind) for kind in VERDICT]
        rows.append({
            "task": task,
            "number": attempt["number"],
            "outcome": attempt["outcome"],
            "cached": (attempt.get("build") or {}).get("cached"),
            "steps_ms": times,
            "parts_ms": {step: {part["name"]: round(part["ms"], 1) for part in (attempt.get(field) or {}).get("cost", [])}
                         for step, field in (("check", "check"), ("measure", "measurement"))},
            "verdict_ms": sum(whole) if all(one is not None for one in whole) else None,
            "exclusive_ms": (measurement.get("device") or {}).get("exclusive_ms"),
            "calls_per_sample": (measurement.get("device") or {}).get("calls_per_sample"),
            "nsys_ms": tiers.get("nsys"),
            "ncu_ms": tiers.get("ncu"),
            "sanitizers_ms": {run["tool"]: run.get("wall_ms") for run in (attempt.get("sanitize") or {}).get("tools", [])},
        })
    if not any(row["verdict_ms"] is not None for row in rows):
        raise Failure("no attempt came to a verdict in the time that was left")
    earlier = night.earlier("cost")
    if not complete and _verdicts(earlier.get("rows", [])) >= _verdicts(rows):
        return earlier
    return {"binary": night.binary(), "complete": complete, "rows": rows, "prepare_ms": _prepare(exported), "summary": {
        name: _spread([row[name] for row in rows]) for name in ("verdict_ms", "exclusive_ms", "nsys_ms", "ncu_ms")}}


def _verdicts(rows: list) -> int:
    return sum(row["verdict_ms"] is not None for row in rows)


def _prepare(exported: dict) -> int | None:
    for run in exported["runs"]:
        for step in run["steps"]:
            if step["kind"] == "prepare_task":
                return took_ms(step)
    return None


def _spread(values: list) -> dict | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"count": len(known), "median": statistics.median(known), "largest": max(known)}
