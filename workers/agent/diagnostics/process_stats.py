"""Resource use of processes and their host, as evidence of why ranks ended.

The kernel answers in well under a millisecond. Only `gpus` is slow: it starts a program of the driver, which can take
seconds or hang.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regroup.workers.os import node_facts

_GPU_FIELDS = (
    "index", "name", "memory.used", "memory.total", "utilization.gpu", "temperature.gpu", "power.draw",
    "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
_GPU_TIMEOUT_S = 5.0


def process(pid: int) -> dict[str, Any]:
    """Return memory, threads, open descriptors and state of a process; nothing if it has ended."""
    try:
        status = _words(Path(f"/proc/{pid}/status"))
        return {
            "state": status.get("State", ""),
            "memory_bytes": _kilobytes(status.get("VmRSS")),
            "peak_memory_bytes": _kilobytes(status.get("VmHWM")),
            "threads": int(status.get("Threads", 0)),
            "descriptors": _descriptors(pid),
            "waits_in": _waits_in(pid),
        }
    except OSError:
        return {}


def host() -> dict[str, Any]:
    """Return load and memory of this machine, and memory of the container that the job's processes share."""
    memory = _words(Path("/proc/meminfo"))
    return {
        "load": list(os.getloadavg()),
        "cpus": os.cpu_count(),
        "memory_bytes": _kilobytes(memory.get("MemTotal")),
        "free_memory_bytes": _kilobytes(memory.get("MemAvailable")),
        "container_memory_bytes": _number(node_facts.CGROUP / "memory.current"),
        "container_limit_bytes": _number(node_facts.CGROUP / "memory.max"),
        "oom_kills": node_facts.oom_kills(),
    }


def gpus() -> list[dict[str, str]]:
    """Return the NVIDIA driver's facts about each device, or nothing if the driver does not answer. Blocking."""
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in output.splitlines()]
    return [dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)]


def _descriptors(pid: int) -> int:
    """Return the number of open descriptors. Since Linux 6.2 it is the size of the folder, which is 0 before."""
    folder = Path("/proc", str(pid), "fd")
    return folder.stat().st_size or len(os.listdir(folder))


def _words(path: Path) -> Mapping[str, str]:
    """Parse a file of lines `Name: value`."""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def _kilobytes(value: str | None) -> int | None:
    return int(value.split()[0]) * 1024 if value else None


def _number(path: Path) -> int | None:
    """Return the number in a file; None if the file is missing or has the word for no limit."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _waits_in(pid: int) -> str:
    """Return the kernel function in which the main thread waits; empty if it runs or the kernel hides it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text().strip("0")
    return ""
