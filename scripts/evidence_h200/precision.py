"""A program against itself, and against one that does five percent more work."""

from .night import Night, attempts_of, over
from .tasks import ROUNDS, chain, small_reference, write_chain, write_small

NAME = "evidence: precision"
LIMIT_S = 200
SLOWER = 1.05
WIDTH = 0.02
"""Of the interval of a program against itself, at most."""


def measure(night: Night) -> dict:
    target, runs = night.target, night.given.runs
    # The remark makes every source another one, so that each is built and nothing is answered from a cache.
    rounds = {"same": ROUNDS[target], "slower": round(ROUNDS[target] * SLOWER)}
    folders = [
        write_chain(night.folder, target, name, [chain(target, rounds[name], f"Program {n}.") for n in range(1, runs + 1)])
        for name in rounds
    ]
    # The same with a short program, where noise weighs more.
    folders.append(write_small(night, "same_short", [small_reference(night, f"Program {n}.") for n in range(1, runs + 1)]))
    profiled = not night.without_profiles()
    night.start()
    night.begin("submit", "run", *map(str, folders), "--model", "scripted", "--name", NAME, "--new", "--exit")
    campaign = night.campaign_named(NAME)
    night.wait_for(campaign, over, "the end of the runs", LIMIT_S)
    found = {"same": [], "same_short": [], "slower": [], "work": SLOWER, "profiled": profiled}
    for task, attempt, _ in attempts_of(night.export(campaign, "precision.json")):
        measurement = attempt.get("measurement")
        row = {"number": attempt["number"], "outcome": attempt["outcome"]}
        if measurement:
            row.update({
                "speedup": measurement["speedup"],
                "samples": len(measurement["baseline_samples_ns"]),
                "baseline_ns": measurement["baseline_median_ns"],
                "candidate_ns": measurement["candidate_median_ns"],
                "rejected_samples": (measurement.get("device") or {}).get("rejected_samples"),
                "precise": measurement["precise"],
            })
        found[task].append(row)
    measured = {name: [row["speedup"] for row in found[name] if "speedup" in row] for name in ("same", "same_short", "slower")}
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
