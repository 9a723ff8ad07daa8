"""The systems of the comparison: how each is installed, and the command that measures it."""

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .failure import Failure

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
# Below the workspace's target folder, which git ignores.
INSTALLED = ROOT / "target" / "peers"
LOAD = ["--in-flight", "{in_flight}", "--workflows", "{workflows}"]


@dataclass(frozen=True)
class System:
    """A name for messages and a command whose arguments may hold placeholders."""

    name: str
    command: list[str]

    def uses(self, placeholder: str) -> bool:
        return any("{" + placeholder + "}" in argument for argument in self.command)

    def filled(self, values: dict[str, str]) -> list[str]:
        """The command with each placeholder replaced; other braces stay as they are."""
        arguments = []
        for argument in self.command:
            for name, value in values.items():
                argument = argument.replace("{" + name + "}", value)
            arguments.append(argument)
        return arguments


def ours(number: int, command: str) -> System:
    """A command line from outside, split as a shell would but never given to one."""
    arguments = shlex.split(command)
    if not arguments:
        raise Failure("--ours needs a command")
    return System(f"ours-{number}", arguments)


def install(name: str, connections: int) -> System:
    """Installs what is missing for this peer and answers how to measure it."""
    return PEERS[name](connections)


def dbos_rust(connections: int) -> System:
    program = _cargo("peer-dbos-rust")
    pool = ["--connections", str(connections)]
    return System("dbos-rust", [str(program), *LOAD, "--database-url", "{database_url}", *pool])


def restate(_: int) -> System:
    program = _cargo("peer-restate")
    return System("restate", [str(program), *LOAD, "--server", str(_restate_server()), "--dir", "{dir}"])


def dbos_python(connections: int) -> System:
    folder = INSTALLED / "dbos-python"
    wanted = HERE / "dbos-python" / "requirements.txt"
    installed = folder / "installed.txt"
    if not installed.is_file() or installed.read_bytes() != wanted.read_bytes():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", "--requirement", str(wanted)])
        shutil.copyfile(wanted, installed)
    command = [str(folder / "bin" / "python"), str(HERE / "dbos-python" / "bench.py"), *LOAD]
    return System("dbos-python", [*command, "--database-url", "{database_url}", "--connections", str(connections)])


PEERS = {"dbos-rust": dbos_rust, "restate": restate, "dbos-python": dbos_python}


def _cargo(package: str) -> Path:
    target = INSTALLED / "cargo"
    _run(
        ["cargo", "build", "--release", "--locked", "-j1", "--package", package],
        cwd=HERE,
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
    )
    return target / "release" / package


def _restate_server() -> Path:
    """The server program of the npm package; npm's install scripts are off, as one of them reports usage."""
    folder = INSTALLED / "restate-server"
    wanted = HERE / "restate" / "package.json"
    installed = folder / "package.json"
    pattern = "node_modules/@restatedev/restate-server-*/bin/restate-server"
    if not any(folder.glob(pattern)) or installed.read_bytes() != wanted.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(wanted, installed)
        _run(["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"], cwd=folder)
    program = next(folder.glob(pattern), None)
    if program is None:
        raise Failure("the npm package of the Restate server brought no program for this kind of machine")
    return program


def _run(command: list[str], **options: object) -> None:
    print(f"installing: {shlex.join(command)}", flush=True)
    try:
        done = subprocess.run(command, **options)
    except FileNotFoundError as missing:
        raise Failure(f"`{command[0]}` is not installed, and this peer needs it; or leave the peer out") from missing
    if done.returncode != 0:
        raise Failure(f"`{shlex.join(command)}` failed, see above")
