"""Masks of new files: those of the platform are private, those of user code have the mode that its user chose."""

import os
from pathlib import Path

VARIABLE = "REGROUP_UMASK"
"""Variable with the umask of user code, in octal. The server sets it for a local cluster, else the agent."""
PRIVATE = 0o077
"""Mask with which only the user of the process can read a new file."""


def make_private() -> None:
    """Make new files of this process and its children private, and record the mask that user code gets."""
    before = os.umask(PRIVATE)
    os.environ.setdefault(VARIABLE, f"{before:03o}")


def user_umask() -> int:
    """Return the mask of user code: the recorded one, else that of this process."""
    try:
        return int(os.environ[VARIABLE], 8)
    except (KeyError, ValueError):
        return _current()


def restore() -> None:
    """Give this process, which runs user code, the mask that its user chose."""
    os.umask(user_umask())


def _current() -> int:
    """Return the mask of this process without a change: another thread may create a file now."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("\nUmask:")[2].split()[0], 8)
