"""What was measured on."""

import os
import platform
import sys
import time

from evidence_h200.machine import commit, first_line


VERSION = "import importlib.metadata as m; print(next((d.version for d in m.distributions() if d.name == 'torch'), 'none'))"


def machine(nightshift):
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        processor = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    python = os.environ.get("NIGHTSHIFT_WORKER__PYTHON", sys.executable)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": first_line([str(nightshift), "--version"]),
        "commit": commit(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{processor}, {os.cpu_count()} cores",
        "gpu": first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
        "pytorch": first_line([python, "-c", VERSION]),
    }
