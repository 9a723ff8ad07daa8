"""docs/evidence/kernelbench.md, from what the parts found."""

from .native import EXPLAINED, NOT_JUDGED

NATIVE_TARGET, TORCH_TARGET = 20, 2
"""So many times the other evaluation's programs an hour."""


def ratio(interval: dict | None) -> str:
    return f"{interval['estimate']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]" if interval else "-"


def seconds(ms: float | None) -> str:
    return f"{ms / 1e3:.1f} s" if ms is not None else "-"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


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
             "The same kernels as native programs, and in files with `ModelNew` and `load_inline`, judged by `nightshift verify`: built, checked, "
             "and measured as for a published number. Cold means that nothing of a program was built before, warm that its library or its "
             "extension was: programs are checked and measured again, those with an extension under other comments. KernelBench evaluates as its "
             "`eval_from_generations.py` does: a process for each program, one at a time, five trials and a hundred timed calls; warm it finds "
             "the extension in its build folder. *In a process* is the part of that after PyTorch and KernelBench are loaded.", "",
             "| what | programs | seconds | an hour | to KernelBench, equally cold or warm |", "| --- | --- | --- | --- | --- |"]
    rates = {kind: rate(found.get(f"peer_{kind}")) for kind in ("cold", "warm")}
    for form, name in (("native", "native programs"), ("torch", "the same kernels with `load_inline`")):
        for kind, other in rates.items():
            row = found.get(f"{form}_{kind}")
            if row:
                # Only what was counted in the same run can be compared.
                is_beside = other and row.get("by") == found[f"peer_{kind}"].get("by")
                compared = f"{row['per_hour'] / other:.1f} times" if is_beside else "-"
                found_built = row.get("built_from_cache") if kind == "cold" else 0
                left_out = f", {found_built} of them found built" if found_built else ""
                wrong = f", {row['wrong']} of them not judged right" if row.get("wrong") else ""
                at_once = f", {row['at_once']} calls at once" if row["at_once"] > 1 else ""
                lines.append(f"| Nightshift, {name}, {kind}, {len(row['tasks'])} tasks{at_once} | {row['verified']}{left_out}{wrong} | "
                             f"{row['seconds']} | {row['per_hour']} | {compared} |")
            else:
                lines.append(f"| Nightshift, {name}, {kind} | not measured | - | - | - |")
    for kind, own in rates.items():
        row = found.get(f"peer_{kind}")
        if row and own:
            within = [program["seconds_within"] for program in row["programs"].values()]
            lines.append(f"| KernelBench, {kind} | {len(row['programs'])} | {row['seconds']} | {own:.0f} ({3600 * len(within) / sum(within):.0f} "
                         "in a process) | - |")
    times = {kind: row["by"] for kind, row in found.items() if isinstance(row, dict) and row.get("by")}
    if len(set(times.values())) > 1:
        told = "; ".join(f"{kind.replace('_', ' ').replace('peer', 'KernelBench')}: {by}" for kind, by in times.items())
        lines += ["", f"Measured at different times: {told}. Rows are compared only if commit, day and GPU are the same."]
    return [*lines, "", f"Wanted: {NATIVE_TARGET} times for native programs, {TORCH_TARGET} times for `ModelNew`.", *steps_told(found)]


def steps_told(found: dict) -> list:
    """Where the time of programs went."""
    lines = []
    for form in ("native_cold", "native_warm", "torch_cold", "torch_warm"):
        for step, parts in (found.get(form) or {}).get("parts_ms", {}).items():
            parted = ", ".join(f"{name.replace('_', ' ')} {seconds(ms)}" for name, ms in parts.items() if ms >= 10)
            lines.append(f"- {form.replace('_', ' ')}, {step}: {parted}")
    return ["", "Mean time of a program, and where it went:", "", *lines] if lines else []


def rate(row: dict | None) -> float | None:
    """Programs in an hour, by the time of those that came to their end."""
    done = [program["seconds"] for program in row["programs"].values()] if row else []
    return len(done) / sum(done) * 3600 if done else None


PARTS = {"native": native, "throughput": throughput}


def page(found: dict) -> str:
    facts = found["facts"]
    head = ["# KernelBench's tasks, measured", "", "Written by `scripts/evidence-kernelbench`. A part that is missing was not measured.", "",
            "| fact | value |", "| --- | --- |"]
    commits = [f"{name}: {found[name]['by']}" for name in PARTS if found.get(name, {}).get("by")]
    head += [f"| commit of each part | {'; '.join(commits)} |"] if commits else []
    head += [f"| {name} | {cell(str(value))} |" for name, value in facts["table"].items()]
    lines = [*head, ""]
    for name, write in PARTS.items():
        if name in found:
            lines += write(found[name])
    return "\n".join(lines) + "\n"
