"""The examples in one campaign, with server and worker killed once in the middle."""

import contextlib
import json
import lzma
import sqlite3
import time

from .night import Failure, Night, attempts_of, log, over, took_ms

EXAMPLES = {
    "cuda": ["cuda_row_softmax", "cuda_layernorm_gelu", "cuda_gemm_bias_relu", "cuda_sum_reduction", "cuda_attention",
             "cuda_transformer_mlp"],
    "cpu": ["row_softmax", "layernorm_gelu", "matmul_bias_relu"],
}
NAME = "evidence: examples"
LIMIT_S = 330
MAX_KEPT_BYTES = 2_500_000
"""Larger files are not kept beside the page."""


def measure(night: Night) -> dict:
    examples = EXAMPLES[night.target]
    night.start()
    began = time.monotonic()
    night.begin("submit", "run", *examples, "--model", "scripted", "--name", NAME, "--new", "--exit")
    campaign = night.campaign_named(NAME)
    total = 3 * len(examples)
    third = total // 3
    before = night.wait_for(campaign, lambda runs: over(runs) or sum(run["digest"]["attempts"] for run in runs) >= third,
                            "the first third of the attempts", LIMIT_S)
    if over(before):
        raise Failure("the campaign was over before it could be killed")
    # In work, not between two steps: that is where something could be lost.
    leased = _leased(night, before)
    log(f"killed with {sum(run['digest']['attempts'] for run in before)} attempts begun and these steps in work: {leased}")
    night.kill()
    killed_after = time.monotonic() - began
    night.start()
    table = night.command("resume", campaign, "--exit", timeout_s=max(30, night.given.until - time.monotonic()), codes=(0, 7))
    seconds = time.monotonic() - began
    exported = night.export(campaign, "campaign.json")
    found = {
        "campaign": campaign,
        "table": table,
        "wall_s": round(seconds, 1),
        "killed_after_s": round(killed_after, 1),
        "killed_attempts": sum(run["digest"]["attempts"] for run in before),
        "killed_steps": leased,
        "unfinished_when_killed": sum(run["status"] not in ("completed", "failed", "cancelled") for run in before),
        "tried_again": sorted(f"{task(run)} {step['key']}" for run in exported["runs"] for step in run["steps"]
                              if step["tries"] > 1),
        "committed_twice": sorted(_twice(exported)),
        "attempts": [_attempt(*one) for one in attempts_of(exported)],
        "tools": _tools(exported),
        "files": [],
    }
    found["files"] += _keep_report(night, exported)
    night.end()
    found["files"] += _keep_database(night)
    return found


def task(run: dict) -> str:
    return run["detail"]["summary"]["digest"]["task"]


def _leased(night: Night, runs: list) -> list:
    keys = []
    for run in runs:
        for step in night.ask("show", run["id"])["open_steps"]:
            if step["status"] == "leased":
                keys.append(f"{run['digest']['task']} {step['key']}")
    return sorted(keys)


def _twice(exported: dict):
    """Steps whose result was committed more than once: there may be none."""
    for run in exported["runs"]:
        seen = set()
        for event in run["events"]:
            if event["kind"] == "step_completed":
                if event["step_key"] in seen:
                    yield f"{task(run)} {event['step_key']}"
                seen.add(event["step_key"])


def _tuning(report: dict | None) -> dict | None:
    """What the search over a program's declared constants found."""
    if not report:
        return None
    names = [tunable["name"] for tunable in report["tunables"]]
    return {
        "configurations": report["configurations"],
        "rounds": report["rounds"],
        "end": report["end"],
        "wall_ms": report["wall_ms"],
        "variants": [{"values": ", ".join(f"{name} = {value}" for name, value in zip(names, variant["values"], strict=True)),
                      "outcome": variant["outcome"], "rounds": variant["rounds"], "speedup": variant.get("speedup")}
                     for variant in report["variants"]],
    }


def _attempt(task: str, attempt: dict, steps: dict) -> dict:
    measurement = attempt.get("confirmation") or attempt.get("measurement") or {}
    profile = attempt.get("profile") or {}
    return {
        "task": task,
        "number": attempt["number"],
        "stage": attempt["stage"],
        "outcome": attempt["outcome"],
        "speedup": measurement.get("speedup"),
        "findings": sorted({finding["code"] for finding in attempt["findings"]}),
        "sanitizers": [f"{run['tool']} {run['outcome']}" for run in (attempt.get("sanitize") or {}).get("tools", [])],
        "tier": profile.get("tier"),
        "bound": (profile.get("bound") or {}).get("bound") or ("unknown" if profile else None),
        "unverified": [f"{run['tool']}: {run.get('reason') or 'no reason given'}"
                       for run in (attempt.get("sanitize") or {}).get("tools", []) if run["outcome"] == "unavailable"],
        "tuning": _tuning(attempt.get("tuning")),
        "own_share": (attempt.get("verdict") or {}).get("custom_kernel_time_share"),
        "steps_ms": {kind: took_ms(step) for kind, step in steps.items()},
    }


def _tools(exported: dict) -> dict:
    """Name and version of every tool that the records name."""
    tools = {}
    for _, attempt, _ in attempts_of(exported):
        build = attempt.get("build") or {}
        if build.get("toolchain"):
            tools[build["toolchain"]["program"]] = build["toolchain"]["version"]
            tools["flags"] = " ".join(build["toolchain"]["flags"])
        for tier in (attempt.get("profile") or {}).get("tiers", []):
            said = tier.get("version") or (tier.get("reason") if not tier["used"] else None)
            if said:
                tools[tier["tool"]] = said
    return tools


def _keep_report(night: Night, exported: dict) -> list:
    """The records of the run with the most attempts, without the bytes of libraries, and its best attempt as people see it."""
    run = max(exported["runs"], key=lambda run: len(run["detail"]["view"]["attempts"]))
    best = run["detail"]["summary"]["digest"].get("best_attempt")
    files = []
    if best is not None:
        text = night.command("show", f"{run['detail']['summary']['id']}/{best}")
        path = night.given.out / "h200-attempt.txt"
        path.write_text(text, encoding="utf-8")
        files.append(path.name)
    small = {hash: data for hash, data in exported["artifacts"].items() if len(data) < 64_000}
    report = {**exported, "runs": [run], "artifacts": small,
              "left_out": sorted(set(exported["artifacts"]) - set(small))}
    return files + _write(night, "h200-report.json.xz", lzma.compress(json.dumps(report).encode(), preset=9))


def _keep_database(night: Night) -> list:
    """The database as it is stored, when it is small enough; `sqlite3` reads it after unpacking."""
    copy = night.data / "kept.db"
    with contextlib.closing(sqlite3.connect(night.data / "nightshift.db")) as database:
        # With what the write-ahead log holds, and without pages that nothing uses any more.
        database.execute("VACUUM INTO ?", (str(copy),))
    packed = lzma.compress(copy.read_bytes(), preset=9)
    return _write(night, "h200-nightshift.db.xz", packed)


def _write(night: Night, name: str, data: bytes) -> list:
    path = night.given.out / name
    path.unlink(missing_ok=True)
    if len(data) > MAX_KEPT_BYTES:
        return [f"{name} was not kept: {len(data)} bytes are more than {MAX_KEPT_BYTES}"]
    path.write_bytes(data)
    return [name]
