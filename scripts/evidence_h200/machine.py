"""What was measured on, and with which tools."""

import os
import platform
import subprocess
import time

from .night import Failure, Night


def measure(night: Night) -> dict:
    doctor = subprocess.run([str(night.given.nightshift), "doctor", "--json"], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, env=night.environment(), timeout=120, check=False)
    if not doctor.stdout.strip():
        raise Failure(f"doctor said nothing: {doctor.stderr.strip()}")
    processor = next((line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": first_line([str(night.given.nightshift), "--version"]),
        "commit": commit(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{processor}, {os.cpu_count()} cores",
        "gpu": first_line(["nvidia-smi", "--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.mem,ecc.mode.current",
                            "--format=csv,noheader"]),
        # Where this run kept its data says nothing about the machine.
        "doctor": doctor.stdout.splitlines()[-1].replace(str(night.folder), "DIR"),
    }


def _read(path: str) -> list:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def first_line(command: list) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not known ({type(error).__name__})"
    return (done.stdout.strip() or done.stderr.strip() or "not known").splitlines()[0]


def commit() -> str:
    """From the variable where the binary was carried to a machine without the repository."""
    return os.environ.get("EVIDENCE_COMMIT") or first_line(["git", "rev-parse", "--short", "HEAD"])
