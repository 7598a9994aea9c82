"""Runs of the `uv` program: its command line, its variables, and its cache on this node. Blocking."""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_CACHE = "uv-cache"
_MAINTENANCE_S = 60.0
_OF_OTHER_TARGETS = frozenset(
    {
        "UV_CACHE_DIR", "UV_NO_CACHE", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_SYSTEM_PYTHON",
        "UV_VENV_SEED", "UV_WORKING_DIR",
    }
)  # fmt: skip
"""Variables that would select another interpreter, folder or cache than this module does."""


def command(*arguments: str) -> list[str]:
    """Return a command line that runs the uv of the platform."""
    import uv  # a node that installs nothing needs no uv

    return [os.fsdecode(uv.find_uv_bin()), *arguments]


def environment(env: Mapping[str, str], settings: Mapping[str, str], cache: Path) -> dict[str, str]:
    """Return the variables of a run of uv.

    Args:
        env: Variables of the job on this node.
        settings: Variables that configure uv; they replace all `UV_*` of `env`.
        cache: Folder of the cache.
    """
    return {
        **{name: value for name, value in env.items() if not name.startswith("UV_")},
        **{name: value for name, value in settings.items() if name not in _OF_OTHER_TARGETS},
        "UV_CACHE_DIR": str(cache),
        "UV_PYTHON_DOWNLOADS": "never",
        "NO_COLOR": "1",
    }


def cache_of(folder: Path) -> Path:
    """Return the cache in the folder of environments: uv links files from it, which needs one file system."""
    return folder / _CACHE


def is_cache(path: Path) -> bool:
    """Return True for the cache among the folders of environments."""
    return path.name == _CACHE


def unshared_bytes(cache: Path) -> int:
    """Return the size of the cached files that no environment links to."""
    total = 0
    for folder, _, names in os.walk(cache):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                stat = os.lstat(os.path.join(folder, name))  # noqa: PTH118  a torch has 20,000 files
                total += stat.st_blocks * 512 if stat.st_nlink == 1 else 0
    return total


def clear_cache(cache: Path) -> bool:
    """Remove the cache. Environments keep their files. Return False if another process uses the cache now."""
    return _maintain(cache, "clean")


def prune_cache(cache: Path) -> bool:
    """Remove what killed builds left in the cache. Return False if another process uses the cache now."""
    return _maintain(cache, "prune")


def _maintain(cache: Path, verb: str) -> bool:
    env = environment({"PATH": os.defpath, "HOME": os.environ.get("HOME", "/")}, {"UV_LOCK_TIMEOUT": "1"}, cache)
    try:
        done = subprocess.run(
            command("cache", verb), env=env, cwd="/", capture_output=True, timeout=_MAINTENANCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
