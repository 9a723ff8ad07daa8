"""What this machine is, and how much of it other work takes."""

import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 2.0
# A file system in memory: fsync costs nothing there, and every durable engine would look fast.
VOLATILE = {"tmpfs", "ramfs"}


def describe(folder: Path, postgres_bin: Path | None) -> dict:
    """The facts that a reader needs beside the numbers."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": cores(),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "fdatasync_us": fdatasync_us(folder, postgres_bin) if postgres_bin else None,
    }


def cores() -> int:
    """All cores, as the counters of the kernel count all of them."""
    return os.cpu_count() or 1


def file_system(folder: Path) -> str:
    """The kind of the file system that holds this folder."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        inside = str(folder) == mount or str(folder).startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def fdatasync_us(folder: Path, postgres_bin: Path) -> float | None:
    """Microseconds for writing 8 kB with fdatasync, by Postgres' own tool; None where the tool is not installed."""
    tool = shutil.which("pg_test_fsync", path=str(postgres_bin))
    if tool is None:
        return None
    probe = folder / "fsync-probe"
    command = [tool, "-s", "1", "-f", str(probe)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout:
                found = re.match(r"\s+fdatasync\s.*?([\d.]+) usecs/op", line)
                if found:
                    return float(found.group(1))
        finally:
            process.terminate()
            process.wait()
            probe.unlink(missing_ok=True)
    return None


def cpu_times() -> tuple[float, float]:
    """Seconds that all cores were busy, and seconds in all, since the machine started."""
    user, nice, system, idle, iowait, irq, softirq, steal, *_ = (
        int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    busy = user + nice + system + irq + softirq + steal
    return busy / TICKS_PER_SECOND, (busy + idle + iowait) / TICKS_PER_SECOND


def busy_percent() -> float:
    """How busy the machine is over the next moments."""
    busy_before, all_before = cpu_times()
    time.sleep(SAMPLE_S)
    busy, whole = cpu_times()
    return 100 * (busy - busy_before) / max(whole - all_before, 1 / TICKS_PER_SECOND)


def wait_until_quiet(limit_percent: float, wait_s: float) -> tuple[float, float]:
    """Waits, but not forever, until the machine is below this limit: the last sample and the seconds waited."""
    begin = time.monotonic()
    while True:
        busy = busy_percent()
        waited = time.monotonic() - begin
        if busy < limit_percent or waited >= wait_s:
            return busy, waited


def tree_seconds(root: int) -> float:
    """CPU seconds of this process, of its living children, and of those it has reaped."""
    fields = _stat(root)
    if fields is None:
        return 0.0
    ticks = sum(int(field) for field in fields[11:15])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            child = _stat(int(entry.name))
            if child is not None and int(child[1]) == root:
                ticks += int(child[11]) + int(child[12])
    return ticks / TICKS_PER_SECOND


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; the name before them may hold spaces."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
