"""What processes and their host use, as evidence of why ranks ended: read from the kernel in well under a millisecond.

Devices are another matter: `gpus` starts a program of the driver's and may take seconds, or fail to return.
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
    """Memory, threads, open descriptors and state of a process; empty when it is gone."""
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
    """Load and memory of this machine, and of the container that the job's processes share."""
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
    """What the NVIDIA driver says of each device; empty where there is none, or it does not answer. Blocking."""
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in said.splitlines()]
    return [dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)]


def _descriptors(pid: int) -> int:
    """The size of the folder is their number since Linux 6.2, and 0 before."""
    folder = Path("/proc", str(pid), "fd")
    return folder.stat().st_size or len(os.listdir(folder))


def _words(path: Path) -> Mapping[str, str]:
    """A file of lines `Name: value`."""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def _kilobytes(value: str | None) -> int | None:
    return int(value.split()[0]) * 1024 if value else None


def _number(path: Path) -> int | None:
    """The number in a file; None if there is none, or no limit."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _waits_in(pid: int) -> str:
    """The kernel function in which the main thread waits; empty while it runs, or where the kernel does not tell."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text().strip("0")
    return ""
