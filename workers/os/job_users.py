"""Users of the jobs on this node: each job has an id of its own, which no other live job of the node has.

A folder that only root can open contains a file for each id in use, with the name of the job's scratch folder. An
agent that replaces a killed one finds the same id there. An id is free again when that scratch folder is gone and no
process has the id, so what a job leaves behind is never given to another one.
"""

import contextlib
import fcntl
import os
import platform
import tempfile
from collections.abc import Generator
from pathlib import Path

from regroup.workers.os import process_user
from regroup.workers.os.user_range import UserRange


class NoFreeUser(OSError):
    """All ids of the range are in use on this node, or this node cannot record them."""


def reserve(users: UserRange, job_id: str, scratch: Path) -> int:
    """Return the id of a job on this node: the one that it has, or a free one. Its scratch folder must exist.

    Raises:
        NoFreeUser: All ids are in use, or the folder of the records belongs to another user.
    """
    folder = _folder()
    with _locked(folder):
        live = _live_users()
        records = _records(folder)
        for user, name in list(records.items()):
            if name == scratch.name and users.first <= user <= users.last:
                return user
            if user not in live and not (scratch.parent / name).exists():
                (folder / str(user)).unlink(missing_ok=True)
                del records[user]
        for user in users.candidates(job_id):
            if user not in records and user not in live:
                (folder / str(user)).write_text(scratch.name)
                return user
    raise NoFreeUser(
        f"all {users.size} user ids from {users.first} to {users.last} are in use on node {platform.node()}; "
        "set REGROUP_RANK_USERS to a larger range"
    )


def find(scratch: Path) -> int | None:
    """Return the id of the job with this scratch folder; None if its ranks run as the agent's user."""
    for user, name in _records(_path()).items():
        if name == scratch.name:
            return user
    return None


def _path() -> Path:
    return Path(tempfile.gettempdir()) / f"regroup-users-{os.geteuid()}"


def _folder() -> Path:
    folder = _path()
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise NoFreeUser(f"{folder} on node {platform.node()} is a link or belongs to another user: remove it")
    return folder


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _records(folder: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    with contextlib.suppress(FileNotFoundError):
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return {}  # made by another user: it proves nothing
        for file in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[int(file.name)] = file.read_text()
    return found


def _live_users() -> set[int]:
    users = (process_user.real_user(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {user for user in users if user is not None}
