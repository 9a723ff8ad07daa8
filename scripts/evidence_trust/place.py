"""Where a call of `nightshift verify` runs: on a GPU of this machine, with all cores or with a share of them."""

import os
import subprocess
from dataclasses import dataclass, field


@dataclass
class Place:
    device: str
    """The number of the GPU; empty where the command may choose."""
    prefix: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)

    def run(self, command, limit_s):
        device = {"NIGHTSHIFT_WORKER__DEVICES": self.device} if self.device else {}
        environment = dict(os.environ, **device, **self.environment)
        return subprocess.run([*self.prefix, *command], capture_output=True, text=True, timeout=limit_s, check=False, env=environment)


def add_places(parser):
    parser.add_argument("--at-once", type=int, default=1, help="calls at the same time, which take turns on the GPUs")
    parser.add_argument("--devices", default="", help="GPUs to use, as `worker.devices` names them, with commas")
    parser.add_argument("--apart", action="store_true", help="give each of these GPUs an equal share of the cores and a cache folder of its own, "
                        "as if it were a machine: calls on one stop nothing on another while they time programs")


def places_of(arguments):
    """A place for each call at the same time."""
    devices = arguments.devices.split(",")
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // len(devices)
    for number in range(arguments.at_once):
        index = number % len(devices)
        if arguments.apart:
            mine = ",".join(str(core) for core in cores[index * share:(index + 1) * share])
            cache = arguments.out / f"cache-{devices[index]}"
            yield Place(devices[index], ["taskset", "--cpu-list", mine], {"NIGHTSHIFT_WORKER__CACHE_DIR": str(cache)})
        else:
            yield Place(devices[index])


def described(arguments):
    """The same in words."""
    gpus, calls = len(arguments.devices.split(",")), arguments.at_once
    words = "one call of `verify` at a time" if calls == 1 else f"{calls} calls of `verify` at the same time"
    if gpus > 1:
        words += f" on {gpus} GPUs"
    return words + (f", each with {len(os.sched_getaffinity(0)) // gpus} cores of its own" if arguments.apart else "")
