"""A server and a worker in a folder of their own, and the commands that ask them."""

import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ANSWER_S = 30
"""How long a server may take to answer after its start, and a command to end."""
RAW = "h200.json"
"""What the parts found; the page is made from it."""


EXPORT_S = 25
"""Kept back from the time limit: what was found by then is still exported and written."""


class Failure(Exception):
    """Something did not go as the evidence needs it."""


class OutOfTime(Failure):
    """What was waited for did not happen within the time that was left."""


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S', time.gmtime())}] {text}", file=sys.stderr, flush=True)


def keep(out: Path, part: str, found: dict) -> None:
    """Stores what a part found, for the page."""
    text = json.dumps({**kept(out), part: found}, indent=1, sort_keys=True)
    (out / RAW).write_text(text + "\n", encoding="utf-8")


def kept(out: Path) -> dict:
    """What each part found the last time that it was measured."""
    path = out / RAW
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


class Night:
    """One part's processes."""

    def __init__(self, given, folder: Path):
        self.given = given
        self.folder = folder
        self.data = folder / "data"
        self.target = "cpu" if given.rehearse else "cuda"
        self.server = None
        self.worker = None
        self.others = []
        folder.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens = {"admin": secrets.token_hex(16), "worker": secrets.token_hex(16)}
        self.extra = {}

    def environment(self, **more: str) -> dict:
        # Nothing of the caller's surroundings decides but where tools and libraries are, and what is logged.
        passed = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "TZ", "NIGHTSHIFT_LOG")
        kept = {key: os.environ[key] for key in passed if key in os.environ}
        folders = {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {**kept, **folders, "HOME": str(self.folder), "NO_COLOR": "1", "COLUMNS": "160", **self.extra, **more}

    def binary(self) -> str:
        """By which program something was measured: results of another one are not mixed with its own."""
        with self.given.nightshift.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def earlier(self, part: str) -> dict:
        """What this binary found for a part before; nothing when another one did."""
        found = kept(self.given.out).get(part) or {}
        return found if found.get("binary") == self.binary() else {}

    def without_profiles(self) -> bool:
        """Tells the worker not to profile, if this binary's workers can be told. Gives whether they can."""
        done = subprocess.run([str(self.given.nightshift), "config", "show", "--json"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=self.environment(), timeout=ANSWER_S, check=True)
        keys = {value["key"] for value in json.loads(done.stdout)["values"]}
        if "worker.profilers" in keys:
            self.extra["NIGHTSHIFT_WORKER__PROFILERS"] = "false"
        return "worker.profilers" in keys

    def start(self) -> None:
        """Starts server and worker, each a process of its own, over the same data as before."""
        self.server = self._spawn(
            "serve", ["--data-dir", str(self.data), "serve", "--no-worker", "--bind", f"127.0.0.1:{self.port}"],
            NIGHTSHIFT_SERVER__TOKEN=self.tokens["admin"], NIGHTSHIFT_SERVER__WORKER_TOKEN=self.tokens["worker"],
        )
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError as error:
                if time.monotonic() > deadline or self.server.poll() is not None:
                    raise Failure("the server does not answer") from error
                time.sleep(0.05)
        self.worker = self._spawn("work", ["work"], NIGHTSHIFT_SERVER__URL=self.url,
                                  NIGHTSHIFT_SERVER__TOKEN=self.tokens["worker"])

    def kill(self) -> None:
        """Ends server and worker as a power failure would."""
        for process in (self.server, self.worker):
            if process and process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        self.server = self.worker = None

    def end(self) -> None:
        for process in (*self.others, self.worker, self.server):
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.server = self.worker = None
        self.others = []

    def _spawn(self, name: str, args: list, **environment: str) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("ab") as output:
            return subprocess.Popen([str(self.given.nightshift), *args], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                    env=self.environment(**environment), start_new_session=True)

    def command(self, *args: str, timeout_s: float = ANSWER_S, codes: tuple = (0,)) -> str:
        """Runs a command against the server and gives its standard output."""
        done = subprocess.run([str(self.given.nightshift), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self._client(), timeout=timeout_s, check=False)
        if done.returncode not in codes:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise Failure(f"`nightshift {' '.join(args)}` ended with {done.returncode}: {' / '.join(said[-3:])}")
        return done.stdout

    def begin(self, name: str, *args: str) -> subprocess.Popen:
        """Starts a command beside; its output goes to a file."""
        output = (self.folder / f"{name}.txt").open("wb")
        errors = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen([str(self.given.nightshift), *args], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                   env=self._client(), start_new_session=True)
        self.others.append(process)
        return process

    def _client(self) -> dict:
        return self.environment(NIGHTSHIFT_SERVER__URL=self.url, NIGHTSHIFT_SERVER__TOKEN=self.tokens["admin"])

    def ask(self, *args: str) -> object:
        """The one JSON document that a command answers with."""
        return json.loads(self.command(*args, "--json").splitlines()[-1])

    def campaign_named(self, name: str) -> str:
        """The id of a campaign, as soon as it exists."""
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            found = [row["id"] for row in self.ask("list", "campaigns")["items"] if row["name"] == name]
            if found:
                return found[0]
            time.sleep(0.2)
        raise Failure(f"there is no campaign `{name}` after {ANSWER_S} s")

    def runs(self, campaign: str) -> list:
        return self.ask("list", "runs", "--campaign", campaign, "--limit", "500")["items"]

    def wait_for(self, campaign: str, until, what: str, limit_s: float) -> list:
        """Polls the runs of a campaign until they are as wanted."""
        deadline = min(time.monotonic() + limit_s, self.given.until - EXPORT_S)
        while True:
            runs = self.runs(campaign)
            if until(runs):
                return runs
            if time.monotonic() > deadline:
                raise OutOfTime(f"{what} did not happen in time: {[(run['digest']['task'], run['status']) for run in runs]}")
            for process, name in ((self.server, "server"), (self.worker, "worker")):
                if process.poll() is not None:
                    raise Failure(f"the {name} ended with {process.returncode}")
            time.sleep(0.5)

    def wait_or_stop(self, campaign: str, until, what: str, limit_s: float) -> bool:
        """Waits as long as there is time, then cancels the campaign: what it found so far is there. Tells whether all of it
        came to its end."""
        try:
            self.wait_for(campaign, until, what, limit_s)
            return True
        except OutOfTime as error:
            log(f"{error}: what is there counts")
            self.command("cancel", campaign)
            return False

    def export(self, id: str, file: str) -> dict:
        """Everything that is stored of a campaign or run."""
        path = self.folder / file
        self.command("export", id, "--format", "json", "--out", str(path), "--force", timeout_s=120)
        return json.loads(path.read_text(encoding="utf-8"))

    def show_logs(self) -> None:
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in lines[-15:]:
                print(f"    {path.stem}: {line}", file=sys.stderr)


def over(runs: list) -> bool:
    return all(run["status"] in ("completed", "failed", "cancelled") for run in runs)


def attempts_of(exported: dict) -> list:
    """Task, attempt and its steps by kind, for every attempt of an export."""
    found = []
    for run in exported["runs"]:
        steps = {}
        for step in run["steps"]:
            part, slash, kind = step["key"].rpartition("/")
            if slash:
                steps.setdefault(part.rpartition("/")[2], {})[kind] = step
        for attempt in run["detail"]["view"]["attempts"]:
            found.append((run["detail"]["summary"]["digest"]["task"], attempt, steps.get(f"attempt{attempt['number']}", {})))
    return found


def took_ms(step: dict | None) -> int | None:
    """Milliseconds from the beginning of a step's last try to its end."""
    if not step or step.get("started_at") is None or step.get("finished_at") is None:
        return None
    return step["finished_at"] - step["started_at"]
