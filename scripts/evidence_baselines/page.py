"""The page on baselines, and the files in KernelBench's layout of timings."""

import json
import math
import statistics

NAMES = ("cuda_graph", "torch.compile", "torch.compile:reduce-overhead", "torch.compile:max-autotune")
FILES = {"cuda_graph": "baseline_time_torch_cuda_graph.json", "torch.compile": "baseline_time_torch_compile_inductor_default.json",
         "torch.compile:reduce-overhead": "baseline_time_torch_compile_inductor_reduce-overhead.json",
         "torch.compile:max-autotune": "baseline_time_torch_compile_inductor_max-autotune.json"}
LAUNCH_BOUND = 1.05
"""A reference that is so many times as fast in a CUDA graph is bound by its launches."""
AGREES = (0.97, 1.03)


def latest(entries, part):
    """The latest result of each task in a part."""
    found = {}
    for entry in entries:
        if entry["part"] == part:
            found[(entry["level"], entry["number"])] = entry
    return dict(sorted(found.items()))


def graph_ratio(entry):
    measured = next((each for each in entry.get("baselines", []) if each["name"] == "cuda_graph" and each.get("speedup")), None)
    return measured["speedup"]["estimate"] if measured else None


def bound(key, sets):
    """Whether launches or the device limit a reference, by its CUDA graph on any GPU; unknown without one."""
    ratio = graph_ratio(sets.get(key, {}))
    return "unknown" if ratio is None else "launches" if ratio > LAUNCH_BOUND else "device"


def interval(speedup):
    return f"{speedup['estimate']:.3f} [{speedup['low']:.3f}, {speedup['high']:.3f}]"


def half_width(speedup):
    return (speedup["high"] - speedup["low"]) / 2 / speedup["estimate"]


def geometric(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def fastest(entry):
    """Name and speedup of the fastest way to run a reference."""
    measured = [(each["speedup"]["estimate"], each["name"]) for each in entry.get("baselines", []) if each.get("speedup")]
    best = max(measured, default=(1.0, "eager"))
    return best if best[0] > 1.0 else (1.0, "eager")


def same_lines(entries, sets):
    tasks = latest(entries, "same")
    judged = {key: entry for key, entry in tasks.items() if entry.get("speedup")}
    if not judged:
        return []
    lines = ["## The reference as the program of its own task (A/A)\n",
             "The goal: the interval contains 1 in 95 % of the tasks, and half its width is at most 2 % where the device limits a reference, 5 % "
             f"where its launches do. A reference counts as bound by launches when it is more than {LAUNCH_BOUND:g} times as fast in a CUDA graph.\n"]
    contains = [key for key, entry in judged.items() if entry["speedup"]["low"] <= 1 <= entry["speedup"]["high"]]
    lines.append(f"{len(judged)} of {len(tasks)} tasks were judged; the interval contains 1 in {len(contains)} ({100 * len(contains) / len(judged):.0f} %).\n")
    lines += ["| Bound by | Tasks | Interval contains 1 | Median half-width | Half-width within the goal | Lowest ratio | Highest ratio |",
              "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for kind, goal in (("device", 0.02), ("launches", 0.05), ("unknown", 0.05)):
        group = {key: entry["speedup"] for key, entry in judged.items() if bound(key, sets) == kind}
        if group:
            widths = [half_width(speedup) for speedup in group.values()]
            ratios = [speedup["estimate"] for speedup in group.values()]
            lines.append(f"| {kind} | {len(group)} | {sum(key in contains for key in group)} | {100 * statistics.median(widths):.2f} % "
                         f"| {sum(width <= goal for width in widths)} | {min(ratios):.3f} | {max(ratios):.3f} |")
    missed = [(key, entry) for key, entry in judged.items() if key not in contains]
    if missed:
        lines += ["\nIntervals that do not contain 1:\n", "| Task | Ratio | Pairs of processes | Bound by |", "| --- | --- | --- | --- |"]
        lines += [f"| {level}/{number} {entry['name']} | {interval(entry['speedup'])} | {', '.join(f'{pair:.3f}' for pair in entry.get('pairs') or [])} | {bound((level, number), sets)} |"
                  for (level, number), entry in missed]
    failed = [(key, entry) for key, entry in tasks.items() if not entry.get("speedup")]
    if failed:
        lines += ["\nNot judged:\n", "| Task | Verdict | Reason |", "| --- | --- | --- |"]
        lines += [f"| {level}/{number} {entry['name']} | `{entry.get('verdict') or 'none'}` | {clean(entry.get('fault'))} |" for (level, number), entry in failed]
    return lines


def clean(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def slowed_lines(entries, _sets):
    slowed = {key: entry for key, entry in latest(entries, "slowed").items() if entry.get("speedup")}
    if not slowed:
        return []
    found = sum(entry["speedup"]["high"] < 1 for entry in slowed.values())
    lines = ["\n## The reference slowed by 5 %\n", "The program waits on the device for 5 % of the reference's time after each call: the ratio should be 0.952.\n",
             f"Found slower (the whole interval below 1) in {found} of {len(slowed)}.\n", "| Task | Ratio |", "| --- | --- |"]
    return lines + [f"| {level}/{number} {entry['name']} | {interval(entry['speedup'])} |" for (level, number), entry in slowed.items()]


def set_lines(entries, _sets):
    sets = {key: entry for key, entry in latest(entries, "set").items() if entry.get("reference")}
    if not sets:
        return []
    lines = ["\n## Baselines\n", "Speedups over eager mode with PyTorch's default flags, each measured in turn with eager mode by the protocol of programs.\n",
             "| Baseline | Measured | Geometric mean | Fastest of all in |", "| --- | ---: | ---: | ---: |"]
    best = {key: fastest(entry) for key, entry in sets.items()}
    lines.append(f"| eager | {len(sets)} | 1.00 | {sum(name == 'eager' for _, name in best.values())} |")
    for name in NAMES:
        ratios = [each["speedup"]["estimate"] for entry in sets.values() for each in entry["baselines"] if each["name"] == name and each.get("speedup")]
        if ratios:
            lines.append(f"| {name} | {len(ratios)} | {geometric(ratios):.2f} | {sum(found == name for _, found in best.values())} |")
    lines.append(f"\nThe fastest baseline is {geometric([ratio for ratio, _ in best.values()]):.2f} times as fast as eager mode (geometric mean of {len(sets)} tasks).\n")
    lines += ["| Task | Eager (ms) | " + " | ".join(NAMES) + " | Fastest | Seconds |", "| --- | ---: |" + " ---: |" * len(NAMES) + " --- | ---: |"]
    reasons = []
    for (level, number), entry in sets.items():
        by_name = {each["name"]: each for each in entry["baselines"]}
        cells = [f"{by_name[name]['speedup']['estimate']:.2f}" if by_name.get(name, {}).get("speedup") else "-" for name in NAMES]
        lines.append(f"| {level}/{number} {entry['name']} | {entry['reference']['median']:.3f} | " + " | ".join(cells) + f" | {best[(level, number)][1]} | {entry.get('wall_s', 0):.0f} |")
        reasons += [f"| {level}/{number} | {each['name']} | {clean(each.get('reason'))} |" for each in entry["baselines"] if not each.get("speedup")]
    if reasons:
        lines += ["\nNot measured:\n", "| Task | Baseline | Reason |", "| --- | --- | --- |"] + reasons
    return lines


def agreement_lines(entries, sets):
    theirs = {key: entry for key, entry in latest(entries, "kernelbench").items() if entry.get("times")}
    ours = {**latest(entries, "set"), **latest(entries, "same")}
    both = {key: (ours[key], entry["times"]) for key, entry in theirs.items() if ours.get(key, {}).get("reference")}
    if not both:
        return []
    ratio = {key: entry["reference"]["mean"] / times["mean"] for key, (entry, times) in both.items()}
    shortest = {key: entry["reference"]["min"] / times["min"] for key, (entry, times) in both.items()}
    lines = ["\n## Agreement with KernelBench's timing code\n",
             "Eager mode, default flags, the same kind of machine: our mean time by the mean of KernelBench's `measure_ref_program_time` (CUDA events, "
             f"100 trials). The goal: {AGREES[0]} to {AGREES[1]} where the device limits a reference. KernelBench had the machine to itself; ours were measured "
             "several at once, each while all others were stopped. A model that is bound by launches takes up to twice as long while another virtual machine "
             "computes on the same physical core of the host. Ours are timed on cores where that is not so, and KernelBench's are not: its means are larger "
             "for them. The shortest times of both are compared, too.\n",
             "| Bound by | Tasks | Within | Median | Lowest | Highest | Shortest times: within | Median |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    agrees = lambda value: AGREES[0] <= value <= AGREES[1]
    for kind in ("device", "launches", "unknown"):
        group = [key for key in ratio if bound(key, sets) == kind]
        if group:
            of_mean, of_shortest = [ratio[key] for key in group], [shortest[key] for key in group]
            lines.append(f"| {kind} | {len(group)} | {sum(map(agrees, of_mean))} | {statistics.median(of_mean):.3f} | {min(of_mean):.3f} | {max(of_mean):.3f} "
                         f"| {sum(map(agrees, of_shortest))} | {statistics.median(of_shortest):.3f} |")
    lines += ["\nOutside:\n", "| Task | Ours (ms) | KernelBench (ms) | Ratio | Of the shortest times | Our deviation | Its deviation | Bound by |",
              "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    for key, value in ratio.items():
        if not agrees(value):
            entry, times = both[key]
            of_both = [f"{100 * each['std'] / each['mean']:.0f} %" for each in (entry["reference"], times)]
            lines.append(f"| {key[0]}/{key[1]} {entry['name']} | {entry['reference']['mean']:.3f} | {times['mean']:.3f} | {value:.3f} | {shortest[key]:.3f} "
                         f"| {of_both[0]} | {of_both[1]} | {bound(key, sets)} |")
    return lines


def example_lines(entries, _sets):
    examples = {key: entry for key, entry in latest(entries, "examples").items() if entry.get("baselines")}
    if not examples:
        return []
    lines = ["\n## The CUDA examples with their library baselines\n", "Speedup of `library.cu` over the example's reference.\n",
             "| Example | Reference (ms) | Library (ms) | Speedup |", "| --- | ---: | ---: | --- |"]
    for entry in examples.values():
        for each in entry["baselines"]:
            if each.get("speedup"):
                lines.append(f"| {entry['name']} | {each['reference']['median']:.4f} | {each['times']['median']:.4f} | {interval(each['speedup'])} |")
            else:
                lines.append(f"| {entry['name']} | - | - | {clean(each.get('reason'))} |")
    return lines


def page(entries, machines):
    lines = ["# Baselines: what users run, and how well it is measured\n",
             "Written by `scripts/evidence-baselines`. Up to 10 tasks were measured at the same time (A/A), and up to 26 (sets of baselines). Times of "
             "the A/A, of slowed references and of the agreement are taken while all other processes of the measurement are stopped, and on a core of "
             "the host that no other virtual machine uses at that moment ([how](../explanation/measurement.md)).\n",
             "Sets at commits a541af1 and fa38aec were measured before that, and before calls were led by another one, on a host on which up to 26 tasks "
             "were prepared at the same time: times of models that are bound by launches, and speedups over or of them, may be wrong by a half."]
    sets = latest(entries, "set")
    for gpu in sorted({entry["gpu"] for entry in entries}):
        mine, facts = [entry for entry in entries if entry["gpu"] == gpu], machines[gpu]
        commits = ", ".join(sorted({entry["commit"] for entry in mine}))
        lines.append(f"\n## {gpu}\n\n{facts['date']}: {facts['gpu']}; {facts['processor']}; PyTorch {facts['pytorch']} with its default flags; "
                     f"{facts['version']}, commit {commits}.\n")
        for part in (same_lines, slowed_lines, set_lines, agreement_lines, example_lines):
            lines += [line.replace("## ", "### ", 1) if line.lstrip("\n").startswith("## ") else line for line in part(mine, sets)]
    return "\n".join(lines) + "\n"


def public_files(entries):
    """Timings in KernelBench's layout, as (path, text)."""
    found = []
    for gpu in sorted({entry["gpu"] for entry in entries}):
        found += public_files_of([entry for entry in entries if entry["gpu"] == gpu], gpu)
    return found


def public_files_of(entries, hardware):
    files = {"baseline_time_torch.json": {}} | {name: {} for name in FILES.values()}

    def add(file, entry, times):
        told = {key: times[key] for key in ("mean", "std", "min", "max", "num_trials")} | {"hardware": hardware, "device": "cuda:0"}
        files[file].setdefault(f"level{entry['level']}", {})[f"{entry['name']}.py"] = told

    for entry in latest(entries, "set").values():
        if entry.get("reference"):
            add("baseline_time_torch.json", entry, entry["reference"])
    for entry in latest(entries, "set").values():
        for each in entry.get("baselines", []):
            if each.get("times") and each["name"] in FILES:
                add(FILES[each["name"]], entry, each["times"])
    folder = "H200" if "H200" in hardware else "H100" if "H100" in hardware else hardware.replace(" ", "_")
    return [(f"{folder}/{name}", json.dumps(found, indent=2, sort_keys=True) + "\n") for name, found in files.items() if found]
