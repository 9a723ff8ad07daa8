"""docs/evidence/kernelbench.md, from what the parts found."""

import statistics

from .native import EXPLAINED, NOT_JUDGED

NATIVE_TARGET, TORCH_TARGET = 20, 2
"""So many times the other evaluation's programs an hour."""


def ratio(interval: dict | None) -> str:
    return f"{interval['estimate']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else "-"


def seconds(ms: float | None) -> str:
    return f"{ms / 1e3:.1f} s" if ms is not None else "-"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def wrapped(found: dict) -> list:
    tasks = found["tasks"]
    done = [task for task in tasks.values() if task.get("outcome")]
    timed = [task for task in done if task["speedup"]]
    lines = ["## Each reference as the program of its own task", "",
             f"{len(tasks)} tasks, {len(done)} programs, {sum(task['right'] == 'pass' for task in done)} verdicts right, {len(timed)} timed."]
    if timed:
        estimates = [task["speedup"]["estimate"] for task in timed]
        lines.append(f"Ratio of the reference to itself: median {statistics.median(estimates):.3f}, from {min(estimates):.3f} to "
                     f"{max(estimates):.3f}; the interval holds 1 in {around_one(timed)} of {len(timed)}.")
        precise = [task for task in timed if "confirmation_imprecise" not in task["findings"]]
        ratios = [task["speedup"]["estimate"] for task in precise]
        if ratios:
            lines.append(f"Of the {len(precise)} whose confirmation is precise, it holds 1 in {around_one(precise)}, with ratios from {min(ratios):.3f} to "
                         f"{max(ratios):.3f}. The others carry the note `confirmation_imprecise`: calls of theirs were few, as each takes "
                         "long, or scatter widely. The latter are models of short kernels, whose time is that of launching them on the processor, "
                         "where other steps are at work beside.")
    if not found.get("profiles", True):
        lines.append("Neither `nsys` nor `torch.compile` looked at these references here (`worker.profilers = false`): the part on references "
                     "below tells what they found.")
    lines += ["", "| task | verdict | ratio and interval | eager | torch.compile, ratio to eager | profile | prepare | check | measure | warnings, findings |",
              "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, task in tasks.items():
        prepared, steps = task["prepared"], task.get("steps_ms", {})
        compiled = prepared.get("baselines", {}).get("torch.compile") or {}
        notes = ", ".join([*(prepared.get("warnings") or []), *task.get("findings", [])]) or "-"
        shown = ratio(compiled.get("speedup")) if compiled.get("speedup") else cell((compiled.get("reason") or "-")[:80])
        eager = f"{task['reference_ms']:.3f} ms" if task.get("reference_ms") else "-"
        verdict = f"{task['right']} ({task['outcome']})" if task.get("outcome") else cell(str(prepared.get("stopped"))[:120])
        lines.append(f"| {name} | {verdict} | {ratio(task.get('speedup'))} | {eager} | {shown} | {prepared.get('tier') or '-'} | "
                     f"{seconds(task.get('prepare_ms'))} | {seconds(steps.get('check'))} | {seconds(steps.get('measure'))} | {notes} |")
    lines += ["", *where_preparing_goes(tasks)]
    return lines


def around_one(tasks: list) -> int:
    return sum(task["speedup"]["low"] <= 1.0 <= task["speedup"]["high"] for task in tasks)


def where_preparing_goes(tasks: dict) -> list:
    """The median of each part of preparing."""
    parts = {}
    for task in tasks.values():
        for name, taken in task["prepared"].get("cost_s", {}).items():
            parts.setdefault(name, []).append(taken)
    told = ", ".join(f"{name} {statistics.median(taken):.1f} s" for name, taken in parts.items())
    return [f"Preparing a task, median of each part: {told}."] if told else []


def said_by_peer(row: dict | None) -> str:
    if not row:
        return "not reached"
    flagged = isinstance(row.get("note"), dict) and row["note"].get("excessive_speedup") == "True"
    return {True: "right", False: "wrong", None: "no result"}[row["correct"]] + (", flagged as too fast" if flagged else "")


def because(name: str) -> str:
    reason = NOT_JUDGED.get(name.split()[0])
    return f" ({reason.rstrip('.')})" if reason else ""


def said_by_project(row: dict | None) -> str:
    return {0: "right", 1: "wrong"}.get(row["status"], f"not run ({cell(row['said'])})") if row else "not reached"


def own_word(entry: dict | None) -> str:
    return {"pass": "right", "fail": "wrong"}.get(entry["right"], entry["outcome"]) if entry else "not reached"


def native(found: dict) -> list:
    rows, agreed, told, differ, lines = [], 0, 0, [], ["", "## Native programs, a right and a wrong one for each task", ""]
    peer, projects = (found.get("peer") or {}).get("programs", {}), found.get("projects", {})
    for name, entry in found["tasks"].items():
        cells = []
        for kind in ("right", "wrong"):
            theirs = peer.get(f"{name} {kind}")
            cells += [own_word(entry[kind]), said_by_peer(theirs)]
            if theirs and theirs["correct"] is not None and entry[kind] and entry[kind]["right"] in ("pass", "fail"):
                told += 1
                same = (entry[kind]["right"] == "pass") == theirs["correct"]
                agreed += same
                if not same:
                    differ.append(f"- {name}, the {kind} one: {EXPLAINED.get(f'{name} {kind}', 'not explained.')}")
        right = entry["right"] or {}
        of_projects = ", ".join(said_by_project(projects.get(f"{name} {kind}")) for kind in ("right", "wrong"))
        rows.append(f"| {name} | {' | '.join(cells)} | {of_projects} | {ratio(right.get('speedup'))} | {entry['what']} |")
    lines += [f"{len(found['tasks'])} tasks. Of {told} programs that both judged, {agreed} got the same verdict. "
              "KernelBench judges what `export --as model-new` wrote; *projects* is what those of `export --as cmake` say of both, built "
              "and run outside of Nightshift.", "",
              "| task | right one: Nightshift | KernelBench | wrong one: Nightshift | KernelBench | projects | ratio to eager | what is wrong |",
              "| --- | --- | --- | --- | --- | --- | --- | --- |", *rows]
    if differ:
        lines += ["", "Where they differ:", "", *differ]
    notes = [f"- {name}: {cell(str(row['note']))[:300]}{because(name)}" for name, row in peer.items() if row["correct"] is None]
    return lines + (["", "KernelBench gave no verdict for:", "", *notes] if notes else [])


def throughput(found: dict) -> list:
    lines = ["", "## Attempts in an hour on one GPU, beside KernelBench's own evaluation", "",
             "One after the other, the same kernels: as native programs, and in files with `ModelNew` and "
             "`load_inline`. Cold means that nothing of a program was built before, warm that its library or its extension was: programs "
             "are checked and measured again, those with an extension under other comments. KernelBench evaluates as its `eval_from_generations.py` does: a process for each program, "
             "one at a time, five trials and a hundred timed calls; warm it finds the extension in its build folder. *In a process* is "
             "the part of that after PyTorch and KernelBench are loaded.", "",
             "| what | programs | seconds | an hour | to KernelBench, equally cold or warm |", "| --- | --- | --- | --- | --- |"]
    rates = {kind: rate(found.get(f"peer_{kind}")) for kind in ("cold", "warm")}
    for form, name in (("native", "native programs"), ("torch", "the same kernels with `load_inline`")):
        for kind, other in rates.items():
            row = found.get(f"{form}_{kind}")
            if row:
                contexts = f", {row['gpu_contexts']} contexts" if row.get("gpu_contexts") else ""
                contexts += f", groups of {row['candidates']}" if row.get("candidates", 1) > 1 else ""
                # What was counted beside it, if that was another time.
                beside = row.get("beside") or other
                compared = f"{row['per_hour'] / beside:.1f} times" if beside else "-"
                compared += f" ({beside:.0f} on that machine)" if row.get("beside") and round(row["beside"]) != round(other or 0) else ""
                found_built = row.get("built_from_cache") if kind == "cold" else 0
                left_out = f" beside {found_built} that were found built" if found_built else ""
                wrong = f", {row['wrong']} of them not judged right" if row.get("wrong") else ""
                lines.append(f"| Nightshift, {name}, {kind}, {len(row['tasks'])} tasks at once{contexts} | {row['verified']}{left_out}{wrong} | {row['seconds']} | "
                             f"{row['per_hour']} | {compared} |")
    for kind, own in rates.items():
        row = found.get(f"peer_{kind}")
        if row and own:
            within = [program["seconds_within"] for program in row["programs"].values()]
            lines.append(f"| KernelBench, {kind} | {len(row['programs'])} | {row['seconds']} | {own:.0f} ({3600 * len(within) / sum(within):.0f} "
                         "in a process) | - |")
    times = {kind: row["by"] for kind, row in found.items() if isinstance(row, dict) and row.get("by")}
    if len(set(times.values())) > 1:
        told = "; ".join(f"{kind.replace('_', ' ').replace('peer', 'KernelBench')}: {by}" for kind, by in times.items())
        lines += ["", f"Not all of it in one go, but on machines of one kind: {told}."]
    return [*lines, "", f"Wanted: {NATIVE_TARGET} times for native programs, {TORCH_TARGET} times for `ModelNew`.", *steps_told(found)]


def steps_told(found: dict) -> list:
    """What steps took, with others beside them."""
    lines = []
    for form in ("native_cold", "native_warm", "torch_cold", "torch_warm"):
        steps = (found.get(form) or {}).get("steps_ms", {})
        told = ", ".join(f"{kind} {seconds(steps[kind]['mean_ms'])} ({steps[kind]['count']})" for kind in
                         ("build", "check", "sanitize", "measure", "confirm", "sanitize_best") if kind in steps)
        lines += [f"- {form.replace('_', ' ')}: {told}"] if told else []
        for step, parts in (found.get(form) or {}).get("parts_ms", {}).items():
            parted = ", ".join(f"{name.replace('_', ' ')} {seconds(ms)}" for name, ms in parts.items() if ms >= 10)
            lines.append(f"  - {step}: {parted}")
    return ["", "Mean time of steps, others beside them, how many there were, and where the time went:", "", *lines] if lines else []


def rate(row: dict | None) -> float | None:
    """Programs in an hour, by the time of those that came to their end."""
    done = [program["seconds"] for program in row["programs"].values()] if row else []
    return len(done) / sum(done) * 3600 if done else None


def attacks(found: dict) -> list:
    peer = (found.get("peer") or {}).get("programs", {})
    lines = ["", "## Programs that deceive", "", "All for the task 1/1. *Published* is whether the program became a result.", "",
             "| program | what it does | KernelBench | its ratio | Nightshift | published | findings | own kernels |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, entry in found["programs"].items():
        theirs = peer.get(name) or {}
        own, other = theirs.get("runtime_ms") or 0, theirs.get("reference_ms") or 0
        ratio_there = f"{other / own:.2f}" if own > 0 and other > 0 else "-"
        published = "yes" if entry["outcome"].startswith("correct") and entry["compliant"] == "pass" else "no"
        share = f"{entry['own_share'] * 100:.0f} %" if entry.get("own_share") is not None else "-"
        lines.append(f"| {name} | {entry['what']} | {said_by_peer(theirs or None)} | {ratio_there} | {entry['outcome']}, {ratio(entry['speedup'])} | "
                     f"{published} | {', '.join(entry['findings']) or '-'} | {share} |")
    return lines


def references(found: dict) -> list:
    lines = ["", "## References as they are, and after torch.compile", "",
             "Both are timed in turn, in processes of their own, on fresh inputs with cold caches, by the protocol of "
             "programs: medians, with the default flags of PyTorch. The files below `kernelbench-timing` hold means in the public layout.", "",
             "| task | file | eager | after torch.compile | ratio to eager |", "| --- | --- | --- | --- | --- |"]
    for name, row in sorted(found.items(), key=lambda entry: tuple(map(int, entry[0].split("/")))):
        lines.append(f"| {name} | {row['file']} | {row['eager']['median']:.3f} ms | {row['compiled']['median']:.3f} ms | {ratio(row['speedup'])} |")
    return lines


def prepared(found: dict) -> list:
    """What was prepared without any program: its times stand with those of all references."""
    rows = [f"- {name}: {cell(row['reason'])[:300]}" + (f" (eager: {row['eager_ms']:.3f} ms)" if row.get("eager_ms") else "")
            for name, row in found.get("untimed", {}).items()]
    return ["", "## References that have no time after torch.compile", "", *rows] if rows else []


PARTS = {"wrapped": wrapped, "prepared": prepared, "native": native, "throughput": throughput, "attacks": attacks}


def of_rows(rows: dict | None) -> str:
    """The commits that rows were measured by, where rows say so."""
    return ", ".join(sorted({row["by"] for row in rows.values() if row.get("by")})) if isinstance(rows, dict) else ""


def page(found: dict) -> str:
    facts = found["facts"]
    head = ["# KernelBench's tasks, measured", "", "Written by `scripts/evidence-kernelbench`. " + facts["how"], "",
            "| fact | value |", "| --- | --- |"]
    commits = [f"{name}: {of_rows(found[name].get('tasks')) or found[name]['by']}" for name in PARTS if found.get(name, {}).get("by")]
    timed = of_rows(found.get("references"))
    commits += [f"references: {timed}"] if timed else []
    head += [f"| commit of each part | {'; '.join(commits)} |"] if commits else []
    head += [f"| {name} | {cell(str(value))} |" for name, value in facts["table"].items()]
    lines = [*head, ""]
    for name, write in PARTS.items():
        if name in found:
            lines += write(found[name])
    if found.get("references"):
        lines += references(found["references"])
    return "\n".join(lines) + "\n"
