"""Files and folders that only the user of this process can read: written atomically, checked before use."""

import os
import secrets
import stat
from pathlib import Path

from regroup.service.domain.errors import ConflictError
from regroup.workers.os import process_user, umask

_OPEN = 0o077
"""Permission bits of the group and of other users."""
_SIGNS = ("api.token", "ray.token", "regroup.db")
"""Names by which a folder is recognized as a state directory."""
_OWN_NAMES = (*_SIGNS, "blobs", "ray.json", "secrets.key", "server.json", "storage")
"""Beginnings of the names of files and folders in a state directory."""


def make_private() -> None:
    """Make new files of this process and of those that it starts private. User code keeps the present umask."""
    umask.make_private()


def hide_memory() -> None:
    """Keep other processes of this user from the memory and the environment of this one, which has credentials."""
    process_user.hide_memory()


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, in place of an existing one. The file is complete or absent."""
    draft = _write_draft(path, text)
    draft.replace(path)


def create_private(path: Path, text: str) -> None:
    """Create a file that only this user can read, unless it exists. The file is complete or absent."""
    draft = _write_draft(path, text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return  # another process created it first, or an earlier run
    finally:
        draft.unlink()


def prepare_state_dir(folder: Path) -> None:
    """Create the state directory, or make an existing one private: its mode, and the modes of the server's files in it.

    Raises:
        ConflictError: the folder belongs to another user; or other users can read it and it is not a state directory,
            so a change of its mode could harm them.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found, entries = folder.stat(), list(os.scandir(folder))
    own = [entry for entry in entries if entry.name.startswith(_OWN_NAMES) and not entry.is_symlink()]
    if found.st_uid != os.geteuid():
        raise ConflictError(
            f"the state directory {folder} belongs to user {found.st_uid}, and this process runs as user "
            f"{os.geteuid()}: choose another one with --state-dir or REGROUP_STATE_DIR"
        )
    is_open = bool(stat.S_IMODE(found.st_mode) & _OPEN)
    if is_open and entries and not any(entry.name in _SIGNS for entry in own):
        raise ConflictError(
            f"other users can open the folder {folder} (mode {stat.S_IMODE(found.st_mode):04o}), and it has files but "
            f"no state of regroup: type `chmod 700 {folder}`, or choose another folder with --state-dir or "
            "REGROUP_STATE_DIR"
        )
    if is_open:
        folder.chmod(0o700)
    for entry in own:  # hard links and open descriptors bypass the mode of the folder
        mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
        if mode & _OPEN:
            Path(entry.path).chmod(mode & ~_OPEN)


def _write_draft(path: Path, text: str) -> Path:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return draft
