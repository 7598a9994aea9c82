"""Facts about the machine and the software versions that produced a result."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from regroup.workers.os.memory_files import have_huge_pages

_PACKAGES = ("torch", "ray", "numpy", "pydantic", "fastapi", "sqlalchemy")


def machine_facts() -> dict[str, Any]:
    """Return processor, memory, kernel with its huge pages, versions, commit and load, as each result stores them."""
    return {
        "cpu_model": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "memory_files_have_huge_pages": have_huge_pages(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "load_average": os.getloadavg(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _git(*arguments: str) -> str:
    root = Path(__file__).resolve().parent
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
