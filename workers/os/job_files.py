"""Files that an agent shares with a job whose processes run as another user.

The job's processes are not trusted: they may replace a file by a link at any time. So an agent writes only into
folders of its own, gives a folder away when it is complete, and reads what a job wrote only after it has reclaimed it.
"""

import os
import stat
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFile(PermissionError):
    """A file in a job's folder that the agent must not read: a link, a device, or another user's file."""


def assign_file(path: Path, user: int | None) -> None:
    """Create a private file unless it exists, and make it that of a job's user; do nothing without one."""
    if user is None:
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchown(fd, user, user)
    finally:
        os.close(fd)


def make_folder(path: Path, user: int | None) -> None:
    """Create a private folder unless it exists, and make it that of a job's user; without one, of this user."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if user is not None:
        os.chown(path, user, user, follow_symlinks=False)


def assign_tree(path: Path, user: int | None) -> None:
    """Give a folder that this process has made to a job's user, with everything in it.

    The folder itself comes last, so the job cannot change what is still to be given.
    """
    if user is None:
        return
    for folder, folders, files in os.walk(path, topdown=False):
        for name in (*folders, *files):
            os.chown(Path(folder, name), user, user, follow_symlinks=False)
    os.chown(path, user, user, follow_symlinks=False)


def reclaim_tree(path: Path, user: int | None) -> None:
    """Make a folder that a job's user wrote that of this process, so that the job can no longer change its entries.

    Raises:
        UnsafeFile: An entry is not a folder and not a regular file with one name, or it is another user's.
    """
    if user is not None:
        fd = os.open(path, _FOLDER)
        try:
            _reclaim(fd, path, user)
        finally:
            os.close(fd)


def open_to_all(path: Path) -> None:
    """Let every user enter and read a folder of the platform."""
    path.chmod(0o755)


def _reclaim(fd: int, path: Path, user: int) -> None:
    own, group = os.geteuid(), os.getegid()
    os.fchown(fd, own, group)  # first: from here on, the job cannot add or replace entries
    os.fchmod(fd, 0o700)
    for name in os.listdir(fd):
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            below = os.open(name, _FOLDER, dir_fd=fd)
            try:
                _reclaim(below, path / name, user)
            finally:
                os.close(below)
        elif stat.S_ISREG(found.st_mode) and found.st_uid in (user, own) and found.st_nlink == 1:
            os.chown(name, own, group, dir_fd=fd, follow_symlinks=False)
        else:
            raise UnsafeFile(f"{path / name} is not a regular file of the job's user {user}")
