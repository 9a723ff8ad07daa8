"""A private Postgres cluster: fresh, on loopback, shipped settings, gone at the end."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from .failure import Failure

OWNER = "bench"
READY_WITHIN_S = 30
STOPS_WITHIN_S = 30


def find_postgres(given: Path | None) -> Path:
    """The folder with Postgres' server programs: the given one, else of the PATH, else the newest of Debian's."""
    if given is not None:
        folders = [given]
    else:
        found = shutil.which("initdb")
        folders = [Path(found).resolve().parent] if found else []
        installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
        folders += sorted(installed, key=lambda path: int(path.parent.name), reverse=True)
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise Failure("no Postgres server programs found: install a Postgres server (15 or newer) or give --postgres-bin")


class Cluster:
    """Use as a context manager: the server runs inside, and its folder is removed after."""

    def __init__(self, programs: Path, folder: Path, user: str | None):
        self.programs = programs
        self.folder = folder
        self.password = secrets.token_hex(16)
        self.port = _free_port()
        self.process: subprocess.Popen | None = None
        self.created = 0
        # initdb refuses root, so another account owns the whole cluster then.
        self.account = _account(user) if os.geteuid() == 0 else None

    def __enter__(self) -> "Cluster":
        self.folder.mkdir(mode=0o700)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def url(self, database: str) -> str:
        return f"postgres://{OWNER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self) -> str:
        """Creates a database and answers its name."""
        self.created += 1
        name = f"bench_{self.created}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def drop(self, database: str) -> None:
        self.sql(f"DROP DATABASE {database} WITH (FORCE)")

    def checkpoint(self) -> None:
        self.sql("CHECKPOINT")

    def sql(self, statement: str) -> str:
        """Runs one statement as the owner; the answer as psql prints it, unaligned."""
        command = [str(self.programs / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]
        command += ["-p", str(self.port), "-U", OWNER, "-d", "postgres", "-c", statement]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"Postgres refused `{statement}`: {done.stderr.strip()}")
        return done.stdout.strip()

    def settings(self) -> dict:
        """What the reader must know of the server."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "lc_collate")
        return {name: self.sql(f"SHOW {name}") for name in names}

    def _start(self) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        if self.account is not None:
            for path in (self.folder, password_file):
                os.chown(path, self.account.pw_uid, self.account.pw_gid)
        data = self.folder / "data"
        self._check(
            self._as_owner(
                [str(self.programs / "initdb"), "-D", str(data), "-U", OWNER, f"--pwfile={password_file}"]
                + ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
            )
        )
        with open(self.folder / "server.log", "w") as log:
            self.process = subprocess.Popen(
                self._as_owner(
                    [str(self.programs / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(self.port)]
                    + ["-k", str(self.folder)]
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.folder,
                # Ctrl-C at the terminal stops this program first, which then stops the server in order.
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                self.sql("SELECT 1")
                return
            except Failure as failure:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log_tail = (self.folder / "server.log").read_text()[-2000:]
                    raise Failure(f"the private Postgres did not start: {failure}\n{log_tail}") from failure
            time.sleep(0.1)

    def _stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(STOPS_WITHIN_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as_owner(self, command: list[str]) -> list[str]:
        # The server ends with this program even when this program is killed.
        prefix = ["setpriv", "--pdeathsig", "INT"]
        if self.account is not None:
            prefix += [f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", "--clear-groups"]
        return prefix + command

    def _environment(self) -> dict[str, str]:
        # Nothing of the caller's PG* variables reaches the private server.
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "PGPASSWORD": self.password}

    def _check(self, command: list[str]) -> None:
        done = subprocess.run(command, env=self._environment(), cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(
                f"`{Path(command[-1]).name}` failed: {done.stderr.strip()}\nIs {self.folder} reachable for the "
                "account that runs Postgres? Give another folder with --scratch if not."
            )


def _account(user: str | None) -> pwd.struct_passwd:
    for name in [user] if user else ["postgres", "nobody"]:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Failure("initdb refuses root and there is no account `postgres` or `nobody`: give one with --postgres-user")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
