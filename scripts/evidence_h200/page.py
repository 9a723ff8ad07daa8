"""docs/evidence/h200.md from what the parts found."""

import json

from .night import kept, log

HELD = {True: "yes", False: "**no**", None: "not measured to the end"}


def write(given, failed: list) -> None:
    found = kept(given.out)
    parts = {name: found.get(name) for name in ("machine", "campaign", "cost", "precision", "throughput")}
    lines = [
        "# The CUDA examples on a GPU" if not given.rehearse else "# A rehearsal on the processor: no evidence",
        "",
        "Written by `scripts/evidence-h200`. Replies are scripted; everything after a reply is real: nvcc, checks on the device, "
        "sanitizers, timings, profiles. Every figure comes from the stored records.",
        "",
    ]
    lines += _facts(parts["machine"], parts["campaign"])
    lines += _promises(parts)
    lines += _parts(parts)
    lines += [f"Left out or failed this time: {text}\n" for text in failed]
    for part, text in (("campaign", _campaign), ("cost", _cost), ("precision", _precision), ("throughput", _throughput)):
        if parts[part]:
            lines += text(parts[part])
    if parts["machine"]:
        lines += ["## What `doctor` says", "", *_doctor(parts["machine"]["doctor"]), ""]
    path = given.out / "h200.md"
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    log(f"written: {path}")
    print(path.read_text(encoding="utf-8"))


def _facts(machine: dict | None, campaign: dict | None) -> list:
    if not machine:
        return ["The machine was not looked at.", ""]
    rows = [("date", machine["date"]), ("version", f"{machine['version']}, commit {machine['commit']}"),
            ("system", machine["system"]), ("processor", machine["processor"]),
            ("GPU: name, memory, driver, highest clocks, ECC", machine["gpu"])]
    rows += sorted((name, f"`{text}`" if name == "flags" else text) for name, text in (campaign or {}).get("tools", {}).items())
    return [*_table(["fact", "value"], rows), ""]


def _parts(parts: dict) -> list:
    """Parts can be measured again one by one, with another binary and on another machine of the kind."""
    rows = [(name, found.get("commit", "not noted"), f"{found['seconds']} s") for name, found in parts.items() if found]
    return [*_table(["part", "measured at commit", "took"], rows), ""]


def _promises(parts: dict) -> list:
    """What was promised, what was measured, whether it holds."""
    cost = (parts["cost"] or {}).get("summary", {})
    verdict = (parts["precision"] or {}).get("verdict", {})
    throughput = parts["throughput"]
    campaign = parts["campaign"]

    def below(name: str, limit_ms: float) -> tuple:
        found = cost.get(name)
        text = f"{_s(found['median'])} median, {_s(found['largest'])} longest of {found['count']}" if found else ""
        return text, found["largest"] <= limit_ms if found else None

    def of(name: str, key: str, least_missing: int) -> tuple:
        found = verdict.get(name)
        if not found or not found["measured"]:
            return "", None
        wanted = parts["precision"].get("wanted", 0)
        if found["measured"] < wanted:
            return f"{found[key]} of {found['measured']}, {wanted} were wanted", None
        return f"{found[key]} of {found['measured']}", found[key] >= found["measured"] - least_missing

    rows = []
    for title, (found, holds) in {
        "killed once in the middle, resumed, nothing committed twice": (
            f"{len(campaign['killed_steps'])} steps in work, {len(campaign['committed_twice'])} committed twice" if campaign else "",
            not campaign["committed_twice"] and bool(campaign["killed_steps"]) if campaign else None),
        "source text to verdict (build, check, measure) of a small kernel: at most 2.5 s": below("verdict_ms", 2_500),
        "of that, the GPU exclusively: at most 0.5 s": below("exclusive_ms", 500),
        "nsys: at most 3 s": below("nsys_ms", 3_000),
        "ncu: at most 5 s": below("ncu_ms", 5_000),
        "verified attempts per hour, eight in flight: at least 1,500": (
            f"{throughput['per_hour']:,}" if throughput else "", throughput["per_hour"] >= 1_500 if throughput else None),
        "a program against itself: 1.00 in an interval of at most 2 %, 19 of 20": of("same", "contains_one_and_is_narrow", 1),
        "the same with a program of some microseconds": of("same_short", "contains_one_and_is_narrow", 1),
        "the same, 1.00 in an interval of whatever width": of("same_short", "contains_one", 1),
        "five percent more work is found slower, each time": of("slower", "found", 0),
    }.items():
        rows.append((title, found, HELD[holds]))
    return [*_table(["promise", "measured", "holds"], rows), ""]


def _campaign(found: dict) -> list:
    lines = ["## The campaign", "",
             f"From submission to the table {found['wall_s']} s. Server and worker were ended with SIGKILL after "
             f"{found['killed_after_s']} s, with {found['killed_attempts']} attempts begun, "
             f"{found['unfinished_when_killed']} runs unfinished and these steps in work: {_list(found['killed_steps'])}. "
             f"Both were started again over the same data. Steps that were begun again: {_list(found['tried_again'])}. "
             f"Results committed twice: {_list(found['committed_twice'])}.", "", "```text",
             *(line.rstrip() for line in found["table"].rstrip().splitlines()), "```", ""]
    rows = []
    for attempt in found["attempts"]:
        speedup = attempt["speedup"]
        rows.append((f"{attempt['task']}/{attempt['number']}", attempt["stage"], attempt["outcome"],
                     f"{speedup['estimate']:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]" if speedup else "",
                     ", ".join(attempt["sanitizers"]), attempt["bound"] or "", attempt["tier"] or "",
                     ", ".join(attempt["findings"])))
    lines += _table(["attempt", "stage", "outcome", "speedup [95%]", "sanitizers", "bound", "profile by", "findings"], rows)
    unverified = [f"- {attempt['task']}/{attempt['number']}: {said}" for attempt in found["attempts"]
                  for said in attempt.get("unverified", [])]
    if unverified:
        lines += ["", "Unverified, because the sanitizer was unavailable:", "", *unverified]
    for attempt in found["attempts"]:
        lines += _tuning(f"{attempt['task']}/{attempt['number']}", attempt.get("tuning"))
    return [*lines, "", f"Kept beside this page: {_list(found['files'])}.", ""]


def _tuning(name: str, found: dict | None) -> list:
    if not found:
        return []
    rows = []
    for variant in found["variants"]:
        one = variant["speedup"]
        rows.append((variant["values"], variant["outcome"], variant["rounds"],
                     f"{one['estimate']:.2f}x [{one['low']:.2f}, {one['high']:.2f}]" if one else ""))
    return ["", f"Constants that `{name}` declares, searched without a model call: {len(found['variants'])} of "
            f"{found['configurations']} variants in {found['rounds']} rounds and {found['wall_ms'] / 1000:.1f} s ({found['end']}). The "
            "speedup is that of a variant's last round, for the choice alone; what is published is measured anew.", "",
            *_table(["variant", "came to", "rounds", "speedup then [95%]"], rows)]


def _cost(found: dict) -> list:
    kinds = ["write_code", "build", "check", "sanitize", "measure", "confirm", "sanitize_best", "profile", "diagnose", "judge"]
    known = [kind for kind in kinds if any(kind in row["steps_ms"] for row in found["rows"])]
    known += sorted({kind for row in found["rows"] for kind in row["steps_ms"]} - set(kinds))
    rows = [(row["number"], row["outcome"], *(_s(row["steps_ms"].get(kind)) for kind in known), _s(row["verdict_ms"]),
             _s(row["exclusive_ms"]), _s(row["nsys_ms"]), _s(row["ncu_ms"])) for row in found["rows"]]
    lines = ["## Cost of an attempt, by step", "",
             "One small program alone on the machine, caches empty at the start; from the beginning of a step's last try to its end, in "
             "seconds, by the server's clock. `verdict` is build, check and measure together; `GPU alone` is how long nothing else "
             f"was to run on the device for `measure`. Preparing the task took {_s(found['prepare_ms'])}.", "",
             *_table(["attempt", "outcome", *known, "verdict", "GPU alone", "nsys", "ncu"], rows), ""]
    parts = {}
    for row in found["rows"]:
        for step, times in row["parts_ms"].items():
            for name, ms in times.items():
                parts.setdefault((step, name), []).append(ms)
        for tool, ms in row["sanitizers_ms"].items():
            if ms is not None:
                parts.setdefault(("sanitize", tool), []).append(ms)
    if parts:
        rows = [(step, name, len(times), f"{sorted(times)[len(times) // 2]:.0f}", f"{max(times):.0f}")
                for (step, name), times in sorted(parts.items())]
        lines += ["Where the time of the longer steps goes, in milliseconds:", "",
                  *_table(["step", "part", "times", "median", "longest"], rows), ""]
    return lines


def _precision(found: dict) -> list:
    lines = ["## A program against itself, and against a slower one", "",
             "`same` and `slower` are chains of multiply-adds; `slower` does "
             f"{(found['work'] - 1) * 100:.0f} % more of them than the baseline. `same_short` is a softmax of some microseconds. Each "
             f"program is built, checked and measured anew. {_profiles(found)}", ""]
    rows = []
    for name in ("same", "same_short", "slower"):
        for row in found[name]:
            if "speedup" not in row:
                rows.append((name, row["number"], row["outcome"], "", "", "", "", ""))
                continue
            one = row["speedup"]
            rows.append((name, row["number"], f"{one['estimate']:.4f}", f"[{one['low']:.4f}, {one['high']:.4f}]",
                         f"{(one['high'] - one['low']) / one['estimate'] * 100:.2f} %", f"{row['baseline_ns'] / 1000:.1f} µs",
                         row["samples"], row.get("calls_per_sample") or 1))
    head = ["pair", "run", "ratio", "95% interval", "width", "baseline", "samples", "calls a sample"]
    return [*lines, *_table(head, rows), ""]


def _throughput(found: dict) -> list:
    rows = [(kind, one["count"], one["mean_ms"]) for kind, one in found["steps"].items()]
    return ["## Throughput", "",
            f"{found['in_flight']} runs at a time, each giving one program after the other, every source new to the compiler: "
            f"{found['verified']} attempts got their verdict (built, checked, measured) in {found['seconds_counted']} s, that is "
            f"**{found['per_hour']:,} per hour**; {found['built_from_cache']} of them were answered from the cache of builds and "
            f"{found['wrong']} had the wrong verdict. {_profiles(found)}", "",
            *_table(["device", "attempts measured on it"], found.get("devices", {}).items()), "",
            *_table(["step", "ended in that time", "mean in ms"], rows), "",
            "Where the time of a check and of a measurement went, in milliseconds:", "",
            *_table(["step", "part", "mean"], [(step, name, ms) for step, named in found.get("parts", {}).items()
                                               for name, ms in named.items()]), ""]


def _profiles(found: dict) -> str:
    return "Attempts were also profiled." if found["profiled"] else "The worker was told not to profile."


def _doctor(text: str) -> list:
    try:
        checks = json.loads(text)["checks"]
    except (ValueError, KeyError):
        return ["```text", text, "```"]
    return _table(["check", "state", "found"], [(one["name"], one["state"], one["found"]) for one in checks])


def _table(head: list, rows: list) -> list:
    def line(cells) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(head), line(["---"] * len(head)), *(line(row) for row in rows)]


def _list(values: list) -> str:
    return ", ".join(f"`{value}`" for value in values) or "none"


def _s(ms: float | None) -> str:
    return "" if ms is None else f"{ms / 1000:.2f} s"
