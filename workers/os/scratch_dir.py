"""Scratch folder of a job on a node: locked while its agent lives. A later agent removes it if the first was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from regroup.workers.os import kill_tree, orphans

_PREFIX = "regroup-job_"
_SWEPT_WITHIN_S = 2.0
_FRESH_S = 5.0
"""Age in seconds below which a folder may not be locked yet."""


def path_of(job_id: str, node_id: str) -> Path:
    """Return the folder of a job on a node. It has one name, so a successor clears what a killed agent left."""
    return Path(tempfile.gettempdir()) / f"regroup-{job_id}-{node_id[:8]}"


def make(folder: Path) -> int:
    """Create an empty folder and lock it; remove what a predecessor left there. Blocking.

    A predecessor that still has the lock after some time was stopped, and is killed. It hides its open files, so a
    later search for processes of the job would not find it.
    """
    deadline = time.monotonic() + _SWEPT_WITHIN_S
    while time.monotonic() < deadline:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            break
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # another agent removes the folder, or a stopped predecessor lives
            time.sleep(0.02)
        finally:
            os.close(fd)
    else:
        kill_tree.kill({pid for pid, held in holders(folder.parent, folder.name).items() if held == folder})
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return lock(folder)


def lock(folder: Path) -> int:
    """Lock a folder against removal while the returned descriptor is open: until its process ends."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def holders(root: Path | None = None, names: str = f"{_PREFIX}*") -> dict[int, Path]:
    """Return pid → the scratch folder that another process locks, also of agents that hide their open files."""
    folders = {}
    for folder in (root or Path(tempfile.gettempdir())).glob(names):
        with contextlib.suppress(OSError):
            folders[folder.stat().st_ino] = folder
    found: dict[int, Path] = {}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()  # 1: FLOCK ADVISORY WRITE pid device:inode start end; a waiting process has "->" first
        if words[1] == "FLOCK" and (folder := folders.get(int(words[5].rpartition(":")[2]))) is not None:
            found[int(words[4])] = folder
    found.pop(os.getpid(), None)
    return found


def sweep(root: Path | None = None) -> list[Path]:
    """Remove folders of jobs that no agent locks and no process uses, and return them. Blocking."""
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
        if folder.stat().st_ino != found.st_ino:  # an agent has recreated it and locks the new folder
            return False
        # Rename it first: an agent of the same job may recreate this path at any time.
        away = folder.with_name(f"regroup-swept-{found.st_ino}")
        folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
