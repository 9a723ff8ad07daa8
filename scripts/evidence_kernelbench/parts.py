"""What is measured, part by part. Every figure comes out of the stored records, through `nightshift export`."""

import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

from evidence_h200.night import EXPORT_S, Failure, Night, OutOfTime, attempts_of, log, over, took_ms

from .native import PROGRAMS, remarked

PEER = Path(__file__).with_name("peer.py")


def verdict_of(attempt: dict) -> dict:
    """Verdict, ratio and what was found of an attempt."""
    verdict, measured = attempt["verdict"], attempt.get("confirmation") or attempt.get("measurement")
    profile = attempt.get("profile") or {}
    return {
        "outcome": attempt["outcome"], "compiled": verdict["compiled"], "right": verdict["numerically_correct"],
        "compliant": verdict["contract_compliant"], "own_share": verdict.get("custom_kernel_time_share"),
        "tier": profile.get("tier"), "findings": sorted({finding["code"] for finding in attempt["findings"]}),
        "messages": sorted({finding["message"] for finding in attempt["findings"]})[:4],
        "speedup": measured["speedup"] if measured else None,
        "reference_ms": measured["baseline_median_ns"] / 1e6 if measured else None,
    }


class Campaign:
    """Tasks with scripts, run to their end or to the end of the time."""

    def __init__(self, night: Night, name: str, folders: list, attempts: int, *options: str):
        self.night, self.name = night, name
        if not night.server:
            # What one part finds out about references, the others find there.
            night.extra.update(NIGHTSHIFT_WORKER__PYTHON=night.given.python, XDG_CACHE_HOME=str(night.given.cache))
            if night.given.gpu_contexts:
                night.extra["NIGHTSHIFT_WORKER__GPU_CONTEXTS"] = str(night.given.gpu_contexts)
            night.start()
        self.process = night.begin("run", "run", *map(str, folders), "--model", "scripted", "--name", name,
                                   "--max-attempts", str(attempts), "--new", "--exit", *options)
        self.id = night.campaign_named(name)

    def ended(self, limit_s: float, until=over) -> dict:
        whole = self.night.wait_or_stop(self.id, until, "the end of the runs", limit_s)
        return {"whole": whole, "id": self.id, "exported": self.night.export(self.id, f"exported-{self.name}.json")}


def native(night: Night, tasks: list, limit_s: float) -> dict:
    """A wrong native program and a right one for each task, and the same programs, wrapped, in the other evaluation."""
    chosen = [task for task in tasks if task.name in PROGRAMS]
    night.without_profiles()
    folders, names = [], {}
    for task in chosen:
        right, wrong, _ = PROGRAMS[task.name]
        programs = [remarked(wrong, "Wrong on purpose."), remarked(right, "")]
        folders.append(task.with_programs(night.folder / "tasks" / task.folder.name, "native", night.target, programs))
        names[task.spec["name"]] = task
    done = Campaign(night, "native", folders, 2).ended(limit_s)
    found, jobs = {}, []
    runs = {run["detail"]["summary"]["digest"]["task"]: run for run in done["exported"]["runs"]}
    for name, task in names.items():
        attempts = runs[name]["detail"]["view"]["attempts"]
        entry = found[task.name] = {"wrong": None, "right": None, "what": PROGRAMS[task.name][2]}
        for kind, attempt in zip(("wrong", "right"), attempts):
            entry[kind] = verdict_of(attempt)
            file = night.folder / "model_new" / f"{name}-{kind}.py"
            file.parent.mkdir(exist_ok=True)
            run_id = runs[name]["detail"]["summary"]["id"]
            night.command("export", f"{run_id}/{attempt['number']}", "--as", "model-new", "--out", str(file), "--force")
            project = night.folder / "projects" / f"{name}-{kind}"
            night.command("export", f"{run_id}/{attempt['number']}", "--as", "cmake", "--out", str(project), "--force")
            jobs.append({"name": f"{task.name} {kind}", "reference": str(task.folder / task.spec["reference"]), "program": str(file),
                         "build": str(night.folder / "extensions" / f"{name}-{kind}"), "project": str(project)})
    return {"whole": done["whole"], "tasks": found, "jobs": jobs, "steps_ms": step_times(done["exported"])}


def step_times(exported: dict) -> dict:
    """Mean time of each kind of step in milliseconds."""
    kinds = {}
    for _, _, steps in attempts_of(exported):
        for kind, step in steps.items():
            if took_ms(step) is not None:
                kinds.setdefault(kind, []).append(took_ms(step))
    return {kind: {"count": len(taken), "mean_ms": round(statistics.fmean(taken))} for kind, taken in sorted(kinds.items())}


def part_times(exported: dict) -> dict:
    """Mean time of each part of checks and of measurements in milliseconds, waiting for the device among them."""
    found = {}
    for _, attempt, _ in attempts_of(exported):
        for step, report in (("check", attempt.get("check")), ("measure", attempt.get("measurement"))):
            for part in (report or {}).get("cost", []):
                found.setdefault(step, {}).setdefault(part["name"], []).append(part["ms"])
    return {step: {name: round(statistics.fmean(taken)) for name, taken in parts.items()} for step, parts in found.items()}


def projects(night: Night, jobs: list, limit_s: float) -> dict:
    """Exported projects, built and run side by side by the commands of their own description, without CMake."""
    began, running = time.monotonic(), {}
    for job in jobs:
        folder = Path(job["project"])
        commands = (folder / "README.md").read_text(encoding="utf-8").split("```sh\n")[2].split("```")[0].split("\n")
        line = " && ".join(command if command != "./compare" else "./compare --samples 0" for command in commands if command)
        running[job["name"]] = subprocess.Popen(["sh", "-c", line], cwd=folder, text=True, stdin=subprocess.DEVNULL,
                                                stdout=(folder / "said").open("w"), stderr=subprocess.STDOUT,
                                                env=night.environment(PYTHON=night.given.python), start_new_session=True)
    found = {}
    for name, process in running.items():
        try:
            found[name] = {"status": process.wait(max(1.0, limit_s - (time.monotonic() - began)))}
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            continue
        said = (Path(next(job["project"] for job in jobs if job["name"] == name)) / "said").read_text(errors="replace")
        found[name]["said"] = said.strip().splitlines()[-1][:300] if said.strip() else ""
    return found


def peer(night: Night, jobs: list, checkout: Path, limit_s: float, processes: int = 1, fresh: bool = False) -> dict:
    """The other evaluation of a list of programs: how it judges, and how long each takes. With `fresh` each program has a
    process of its own, whose time is the program's, as in the script that evaluates a run of generated programs."""
    began = time.monotonic()
    left = lambda: limit_s - (time.monotonic() - began)  # noqa: E731
    if fresh:
        found = {}
        for job in jobs:
            started = time.monotonic()
            said = _asked_of_peer(night, [[job]], checkout, left())
            for name, row in said.items():
                found[name] = row | {"seconds_within": row["seconds"], "seconds": round(time.monotonic() - started, 2)}
    else:
        found = _asked_of_peer(night, [jobs[number::processes] for number in range(processes)], checkout, left())
    return {"seconds": round(time.monotonic() - began, 1), "programs": found, "asked": len(jobs)}


def try_peer(python: str, checkout: Path) -> None:
    """Whether the other evaluation can be asked at all: what it lacks is to be told before anything is measured."""
    done = subprocess.run([python, str(PEER), str(checkout), os.devnull], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise Failure(f"KernelBench's evaluation cannot be loaded: {said[-1] if said else done.returncode}. Install what it imports "
                      f"for {python}, or leave out what compares with it (--only, --count)")


def _asked_of_peer(night: Night, lists: list, checkout: Path, limit_s: float) -> dict:
    """A process for each list, side by side."""
    began, running = time.monotonic(), []
    for jobs in lists:
        path = night.folder / f"jobs-{time.monotonic_ns()}.json"
        path.write_text(json.dumps(jobs), encoding="utf-8")
        running.append(subprocess.Popen([night.given.python, str(PEER), str(checkout), str(path)], stdout=subprocess.PIPE,
                                        stderr=(night.folder / "peer.log").open("ab"), text=True, stdin=subprocess.DEVNULL))
    found = {}
    for process in running:
        try:
            said, _ = process.communicate(timeout=max(1.0, limit_s - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        for line in said.splitlines():
            row = json.loads(line)
            found[row.pop("name")] = row
    return found


def throughput(night: Night, tasks: list, form: str, programs: dict, again: dict, settled: dict, count_s: tuple,
               candidates: int) -> dict:
    """Verified attempts in an hour: runs whose scripts give right programs again and again, each as another text. First no
    program was ever built, then all of them were: the same ones, or `again`, whose extensions are those of the first."""
    night.without_profiles()
    found, built = {}, 0
    for kind, seconds in zip(("cold", "warm"), count_s):
        texts = programs
        if kind == "warm":
            # Again and again what was built, so that it lasts.
            length = len(programs[tasks[0].name])
            texts = again or {task.name: (programs[task.name][:built] * length)[:length] for task in tasks}
        folders = [task.with_programs(night.folder / kind / task.folder.name, form, night.target, texts[task.name])
                   for task in tasks]
        attempts = min(map(len, texts.values()))
        began = settled[kind] * candidates
        options = ["--strategy", "group", "--candidates", str(candidates)] if candidates > 1 else []
        try:
            row, built = _counted(night, tasks, folders, f"{form}-{kind}", attempts, began, seconds, options,
                                  kind == "warm")
            found[f"{form}_{kind}"] = row | {"candidates": candidates}
        except Failure as error:
            if kind == "cold":
                raise
            log(f"{form}: {error}: what was counted cold stays")
    return found


SETTLE_S = 240
"""How long runs may take until they are counted."""


def _counted(night: Night, tasks: list, folders: list, name: str, attempts: int, settled: int, count_s: float,
             options: list, with_built: bool) -> tuple:
    """What was verified while it was counted, and how many programs of each run were built. All of them are right, and what was not
    judged so is not among those of an hour. Those that were found built count only `with_built`."""
    campaign = Campaign(night, f"throughput-{name}", folders, attempts, *options)
    try:
        night.wait_for(campaign.id, lambda runs: len(runs) == len(folders) and all(run["digest"]["attempts"] >= settled for run in runs),
                       f"attempt {settled} of every run", SETTLE_S)
    except OutOfTime as error:
        log(f"{error}: what comes from now on is counted")
    began = time.time() * 1000
    log(f"{name}: counting for {count_s:.0f} s")
    deadline = min(time.monotonic() + count_s, night.given.until - EXPORT_S)
    while time.monotonic() < deadline and not over(night.runs(campaign.id)):
        time.sleep(0.2)
    ended = time.time() * 1000
    if not over(night.runs(campaign.id)):
        night.command("cancel", campaign.id)
    exported = night.export(campaign.id, f"exported-{name}.json")
    verified, wrong, cached, built = 0, 0, 0, dict.fromkeys((task.spec["name"] for task in tasks), 0)
    for task, attempt, steps in attempts_of(exported):
        built[task] += bool((attempt.get("build") or {}).get("library"))
        end = (steps.get("measure") or {}).get("finished_at")
        if end is not None and began <= end < ended and attempt.get("measurement"):
            found_built = bool((attempt.get("build") or {}).get("cached"))
            cached += found_built
            if found_built and not with_built:
                continue
            verified += 1
            wrong += not attempt["outcome"].startswith("correct")
    seconds = (ended - began) / 1000
    if not verified:
        raise Failure(f"no attempt was verified in {seconds:.0f} s ({name})")
    row = {"tasks": [task.name for task in tasks], "seconds": round(seconds, 1), "verified": verified, "wrong": wrong,
           "built_from_cache": cached, "per_hour": round((verified - wrong) / seconds * 3600), "settled": settled,
           "steps_ms": step_times(exported), "parts_ms": part_times(exported), "gpu_contexts": night.given.gpu_contexts}
    return row, max(1, min(built.values()))
