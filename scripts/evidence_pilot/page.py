"""The page of a pilot, from the exported campaign."""

import math
from collections import Counter

DEVICE_STEPS = ("build", "check", "measure", "confirm", "profile", "sanitize", "sanitize_best", "tune")
LABELS = {"cuda_graph": "CUDA graph", "reference": "eager"}


def ratio(interval):
    return f"{interval['estimate']:.2f} [{interval['low']:.2f}, {interval['high']:.2f}]" if interval else "-"


def milliseconds(ns):
    return f"{ns / 1e6:.3g}" if ns else "-"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def seconds(steps, keep):
    """Seconds between start and end of the steps that are kept, which may overlap."""
    return sum((step["finished_at"] - step["started_at"]) / 1e3 for step in steps if step["started_at"] and step["finished_at"] and keep(step["key"].rsplit("/")[-1]))


def row(run):
    digest, view = run["detail"]["summary"]["digest"], run["detail"]["view"]
    prepared, times = view["prepared"], digest.get("best_times") or {}
    fastest = digest.get("fastest_baseline") or {}
    name = LABELS.get(fastest.get("kind"), fastest.get("kind", "-"))
    best = fastest.get("median_ns")
    outcomes = ", ".join(f"{outcome} {count}" for outcome, count in Counter(attempt["outcome"] for attempt in view["attempts"]).items())
    reference = times.get("reference_median_ns") or (prepared or {}).get("baseline_median_ns")
    return (f"| `{digest['task']}` | {milliseconds(reference)} | {name} {milliseconds(best)} | {milliseconds(times.get('attempt_median_ns'))} | "
            f"{ratio(digest.get('best_speedup'))} | {ratio(digest.get('best_speedup_over_fastest'))} | {digest.get('best_attempt') or '-'} of {digest['attempts']} | {outcomes or '-'} |")


def course(run):
    """The speedups of a run's attempts, in order."""
    said = []
    for attempt in run["detail"]["view"]["attempts"]:
        measured = attempt.get("confirmation") or attempt.get("measurement")
        said.append(f"{measured['speedup']['estimate']:.2f}" if measured else attempt["outcome"])
    digest = run["detail"]["summary"]["digest"]
    return f"| `{digest['task']}` | {' → '.join(said) or '-'} | {seconds(run['steps'], lambda key: key == 'prepare_task'):.0f} | {seconds(run['steps'], lambda key: key in DEVICE_STEPS):.0f} |"


def page(campaign, times):
    """The page as text."""
    runs = sorted(campaign["runs"], key=lambda run: run["detail"]["summary"]["digest"]["task"])
    digests = [run["detail"]["summary"]["digest"] for run in runs]
    faster = [digest for digest in digests if digest.get("best_speedup") and digest["best_confirmed"]]
    over_eager = [digest["best_speedup"]["estimate"] for digest in faster]
    over_fastest = [digest["best_speedup_over_fastest"]["estimate"] for digest in faster if digest.get("best_speedup_over_fastest")]
    beaten = sum(digest["best_speedup_over_fastest"]["low"] > 1 for digest in faster if digest.get("best_speedup_over_fastest"))
    attempts = [attempt for run in runs for attempt in run["detail"]["view"]["attempts"]]
    calls = [call for run in runs for attempt in run["detail"]["view"]["attempts"] for call in attempt["calls"]]
    here, stopped = times[-1], [digest["task"] for digest in digests if not digest["attempts"]]
    lines = [
        "# Pilot: a coding agent makes models of KernelBench faster",
        "",
        "Written by `scripts/evidence-pilot` from one campaign. A coding agent answered every request of Planner, Coder and Verifier "
        "([how](../how-to/outside-agents.md)): it had the product's prompts, and no GPU. The device steps ran in rounds on a machine with "
        "GPUs, between which the data folder went back to where the agent answered.",
        "",
        f"{here['date']}: {here['gpu']}; {here['processor']}; PyTorch {here['pytorch']} with its default flags; {here['version']}, commit {here['commit']}. Strategy `stitch`, "
        f"precision policy `reference`, PyTorch form (`ModelNew`), {len(times)} rounds of {sum(time['seconds'] for time in times):.0f} s together.",
        "",
        f"{len(faster)} of {len(runs)} tasks became faster. Geometric mean of those: **{geometric_mean(over_eager):.2f} over eager mode, {geometric_mean(over_fastest):.2f} over the fastest "
        f"baseline** (CUDA graph and three modes of torch.compile, measured for each task); {beaten} are faster than their fastest baseline by the whole interval. "
        f"{len(attempts)} attempts, {len(calls)} calls that belong to attempts.",
        "",
        "Each speedup is the confirmation: measured anew on a quiet host, with a 95 % interval ([how](../explanation/measurement.md)).",
        "The best programs are in [pilot/](pilot). Any GPU can judge one: `nightshift verify KernelBench/KernelBench/level3/39_GRU.py docs/evidence/pilot/l3-39-gru.py --baselines`.",
        "",
        "| Task | Eager (ms) | Fastest baseline (ms) | Best program (ms) | Over eager | Over the fastest baseline | Best attempt | Outcomes |",
        "| --- | ---: | --- | ---: | --- | --- | --- | --- |",
        *map(row, runs),
        "",
        "## How the attempts went",
        "",
        "Speedups over eager mode, in the order of attempts; seconds on the device machine, of steps that partly ran at the same time.",
        "",
        "| Task | Attempts | Preparing (s) | Other device steps (s) |",
        "| --- | --- | ---: | ---: |",
        *map(course, runs),
    ]
    if stopped:
        lines += ["", "Without an attempt: " + ", ".join(f"`{task}`" for task in stopped) + "."]
    return "\n".join(lines) + "\n"
