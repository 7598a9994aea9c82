"""The folder of a job on a node: held while its agent lives, swept by whoever comes later if that was killed."""

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from regroup.workers.os import orphans

_PREFIX = "regroup-job_"
_SWEPT_WITHIN_S = 2.0
_FRESH_S = 5.0
"""A folder is not held yet in the moment in which it is made."""


def path_of(job_id: str, node_id: str) -> Path:
    """One name per job and node: an agent that was killed leaves nothing that its successor there does not clear."""
    return Path(tempfile.gettempdir()) / f"regroup-{job_id}-{node_id[:8]}"


def make(folder: Path) -> int:
    """An empty folder, held as `hold` does; what a predecessor has left there is removed. Blocking."""
    deadline = time.monotonic() + _SWEPT_WITHIN_S
    while time.monotonic() < deadline:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            break
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # it is being swept, or a predecessor that was stopped lives still
            time.sleep(0.02)
        finally:
            os.close(fd)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return hold(folder)


def hold(folder: Path) -> int:
    """Keep a folder from being swept for as long as the returned descriptor is open: until its process ends."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def sweep(root: Path | None = None) -> list[Path]:
    """Remove folders of jobs that no agent holds and no process uses any more; returns which. Blocking."""
    return [folder for folder in sorted((root or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*")) if _swept(folder)]


def _swept(folder: Path) -> bool:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if found.st_uid != os.getuid() or time.time() - found.st_mtime < _FRESH_S or orphans.in_use(folder):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino != found.st_ino:  # an agent has made it anew, and holds that
            return False
        # By another name first: an agent of the same job may make this one again at any time.
        away = folder.with_name(f"regroup-swept-{found.st_ino}")
        folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
