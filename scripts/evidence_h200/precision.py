"""A program against itself, and against one that does five percent more work."""

from .night import Failure, Night, attempts_of, over
from .tasks import ROUNDS, chain, small_reference, write_chain, write_small

NAME = "evidence: precision"
LIMIT_S = 480
SLOWER = 1.05
KINDS = ("same", "same_short", "slower")
WIDTH = 0.02
"""Of the interval of a program against itself, at most."""


def measure(night: Night) -> dict:
    target, runs = night.target, night.given.runs
    earlier = night.earlier("precision")
    rows = {name: [row for row in earlier.get(name, []) if "speedup" in row] for name in KINDS}
    left = {name: max(0, runs - len(rows[name])) for name in KINDS}
    if not any(left.values()):
        return earlier
    # The remark makes every source another one, so that each is built and nothing is answered from a cache.
    rounds = {"same": ROUNDS[target], "slower": round(ROUNDS[target] * SLOWER)}
    folders = [
        write_chain(night.folder, target, name, [chain(target, rounds[name], f"Program {n}.") for n in range(left[name])])
        for name in rounds if left[name]
    ]
    # The same with a short program, where noise weighs more.
    if left["same_short"]:
        folders.append(write_small(night, "same_short", [small_reference(night, f"Program {n}.") for n in range(left["same_short"])]))
    profiled = not night.without_profiles()
    night.start()
    night.begin("submit", "run", *map(str, folders), "--model", "scripted", "--name", NAME, "--new", "--exit")
    campaign = night.campaign_named(NAME)
    complete = night.wait_or_stop(campaign, over, "the end of the runs", LIMIT_S)
    found = {**rows, "binary": night.binary(), "complete": complete, "wanted": runs, "work": SLOWER, "profiled": profiled}
    for task, attempt, _ in attempts_of(night.export(campaign, "precision.json")):
        measurement = attempt.get("measurement")
        if not measurement and not complete:
            continue
        row = {"number": attempt["number"], "outcome": attempt["outcome"]}
        if measurement:
            row.update({
                "speedup": measurement["speedup"],
                "samples": len(measurement["baseline_samples_ns"]),
                "baseline_ns": measurement["baseline_median_ns"],
                "candidate_ns": measurement["candidate_median_ns"],
                "calls_per_sample": (measurement.get("device") or {}).get("calls_per_sample"),
                "rejected_samples": (measurement.get("device") or {}).get("rejected_samples"),
                "precise": measurement["precise"],
            })
        found[task].append(row)
    measured = {name: [row["speedup"] for row in found[name] if "speedup" in row] for name in KINDS}
    if not any(measured.values()):
        raise Failure("nothing was measured in the time that was left")
    found["verdict"] = {
        name: {
            "measured": len(measured[name]),
            "contains_one": sum(one["low"] <= 1.0 <= one["high"] for one in measured[name]),
            "contains_one_and_is_narrow": sum(
                one["low"] <= 1.0 <= one["high"] and (one["high"] - one["low"]) / one["estimate"] <= WIDTH
                for one in measured[name]),
        }
        for name in ("same", "same_short")
    }
    found["verdict"]["slower"] = {
        "measured": len(measured["slower"]),
        "found": sum(one["high"] < 1.0 for one in measured["slower"]),
    }
    return found
