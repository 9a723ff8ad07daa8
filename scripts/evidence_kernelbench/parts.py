"""What is measured, part by part. Every figure comes out of the stored records, through `nightshift export`."""

import json
import os
import signal
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence_h200.night import Failure, Night, log, over

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
    return {"whole": done["whole"], "tasks": found, "jobs": jobs}


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


def throughput(given, folder: Path, tasks: list, form: str, texts: dict, until: float) -> dict:
    """Programs that `nightshift verify` judges in an hour, called as people and agents call it: first none of them was ever built, then
    the same ones again. `texts` gives the programs of each task, by kind. Each task has one call; `given.at_once` calls run at the same
    time. A call that runs out of time counts nothing."""
    suffix, found = {"native": ".cu", "torch": ".py"}[form], {}
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "NIGHTSHIFT_WORKER__PYTHON": given.python, "NO_COLOR": "1"}
    for kind in ("cold", "warm"):
        began, rows, reached = time.monotonic(), [], {}

        def judged(task, kind=kind):
            files = []
            for number, text in enumerate(texts[kind][task.name]):
                file = folder / kind / task.folder.name / f"program{number}{suffix}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                files.append(str(file))
            command = [str(given.nightshift), "--json", "verify", str(task.folder), *files]
            left_s = until - time.monotonic()
            if left_s < 5:
                return []
            try:
                done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=left_s, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                log(f"{task.name}: the time was over")
                return []
            told = json.loads(done.stdout or "{}")
            programs = told.get("programs", [])
            for fault in [told.get("error")] + [program["fault"] for program in programs]:
                if fault:
                    log(f"{task.name}: {fault['message']}")
            judged_ones = [program for program in programs if program["judgement"]]
            if judged_ones:
                reached[task.name] = time.monotonic() - began
            return judged_ones

        with ThreadPoolExecutor(given.at_once) as calls:
            for programs in calls.map(judged, tasks):
                rows += programs
        seconds = max(reached.values(), default=0.0)
        right = [row for row in rows if row["right"]]
        if rows:
            found[f"{form}_{kind}"] = {
                "tasks": [task.name for task in tasks if task.name in reached], "at_once": given.at_once, "seconds": round(seconds, 1), "verified": len(rows),
                "wrong": len(rows) - len(right), "per_hour": round(len(right) / seconds * 3600), "parts_ms": part_times(rows),
                "built_from_cache": sum(bool((row["judgement"].get("build") or {}).get("cached")) for row in rows),
            }
            log(f"{form} {kind}: {len(right)} of {len(rows)} right in {seconds:.0f} s")
    return found


def part_times(rows: list) -> dict:
    """Mean time of builds, and of each part of checks and measurements, in milliseconds."""
    found = {}
    for judgement in (row["judgement"] for row in rows):
        found.setdefault("build", {}).setdefault("all", []).append((judgement.get("build") or {}).get("duration_ms", 0))
        for step in ("check", "measurement"):
            for part in (judgement.get(step) or {}).get("cost", []):
                found.setdefault(step, {}).setdefault(part["name"], []).append(part["ms"])
    return {step: {name: round(statistics.fmean(taken)) for name, taken in parts.items()} for step, parts in found.items()}
