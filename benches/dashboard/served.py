"""Our own server with generated attempts: filled, started, asked over HTTP."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches" / "peers"))

from harness.failure import Failure  # noqa: E402

ANSWER_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


def target() -> Path:
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def binary() -> Path:
    """The program of a release build."""
    return target() / "release" / "nightshift"


def surroundings(url: str | None = None) -> dict[str, str]:
    """The environment of a command: the caller's without what would configure it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTSHIFT_")}
    environment.pop("DATABASE_URL", None)
    return environment | ({"DATABASE_URL": url} if url else {})


def generate(program: Path, folder: Path, attempts: int, seed: int, url: str | None = None) -> dict:
    """Fills a database, and answers what the command says of it."""
    command = [str(program), "--json", "--data-dir", str(folder), "__generate"]
    command += ["--attempts", str(attempts), "--seed", str(seed)]
    filled = subprocess.run(command, env=surroundings(url), stdout=subprocess.PIPE, text=True)
    if filled.returncode != 0:
        raise Failure(f"the database could not be filled: {filled.stdout}")
    return json.loads(filled.stdout.splitlines()[-1])


class Server:
    """A running server, asked over one connection."""

    def __init__(self, program: Path, folder: Path, url: str | None = None, worker: bool = False):
        self.began = time.monotonic()
        command = [str(program), "--json", "--data-dir", str(folder), "serve", "--bind", "127.0.0.1:0"]
        command += [] if worker else ["--no-worker"]
        self.folder = folder
        self.process = subprocess.Popen(command, env=surroundings(url), stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise Failure("the server did not start")
        self.address = json.loads(line)["address"]
        self.started_ms = (time.monotonic() - self.began) * 1e3
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(self.address).netloc, timeout=ANSWER_TIMEOUT_S)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def token(self) -> str:
        """The token that it made for the commands of this machine."""
        return json.loads((self.folder / "server.json").read_text())["token"]

    def get(self, path: str) -> tuple[float, bytes]:
        """Milliseconds to the last byte of the answer, and the answer."""
        began = time.perf_counter()
        try:
            self.connection.request("GET", "/api/v1" + path)
            answer = self.connection.getresponse()
        except http.client.RemoteDisconnected:
            # The server ends connections on which nothing was asked for a while.
            self.connection.close()
            began = time.perf_counter()
            self.connection.request("GET", "/api/v1" + path)
            answer = self.connection.getresponse()
        body = answer.read()
        took_ms = (time.perf_counter() - began) * 1e3
        if answer.status != 200:
            raise Failure(f"GET {path}: {answer.status} {body[:300]!r}")
        return took_ms, body

    def resident_mb(self) -> tuple[float, float]:
        """What it has in memory now, and what it had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kb = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))}
        return kb["VmRSS"] / 1024, kb["VmHWM"] / 1024
