"""Processes of other users, and a Python that all of them can run.

The interpreter of a test may be below a home that only root can enter. A mount namespace shows its folder to everyone,
and nothing else of that home. The machine itself does not change.
"""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import regroup

FIRST_USER, LAST_USER = 200_000, 265_535
"""Users that no other program of a machine has."""
USER = 199_999
"""A user outside of that range."""


def python_for_all(folder: Path, user: int | None = None) -> Path:
    """Write a program into `folder` that runs this Python where every user can enter its folder; return its path.

    Args:
        folder: an existing folder.
        user: the user that the program becomes; None for the present one.
    """
    program = folder / "python-for-all"
    needed = (Path(sys.executable).resolve(), Path(sys.prefix).absolute(), Path(regroup.__file__).resolve())
    become = "" if user is None else f"setpriv --reuid {user} --regid {user} --clear-groups "
    command = f'exec {become}{shlex.quote(sys.executable)} "$@"'
    if mounts := list(_mounts(folder, needed)):
        inside = " && ".join([*mounts, command])
        command = f'exec unshare --mount --propagation private sh -c {shlex.quote(inside)} sh "$@"'
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    return program


def _mounts(folder: Path, needed: Sequence[Path]) -> Iterator[str]:
    """Yield commands that hide each closed home, except the folders in it that are needed."""
    shown: dict[Path, set[Path]] = {}
    for path in needed:
        closed = next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)
        if closed is not None:
            shown.setdefault(closed, set()).add(closed / path.relative_to(closed).parts[0])
    for home, folders in shown.items():
        kept = {each: folder / f"kept-{each.name}" for each in folders}
        for each, away in kept.items():
            away.mkdir(exist_ok=True)
            yield shlex.join(["mount", "--bind", str(each), str(away)])
        yield shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(home)])
        for each, away in kept.items():
            yield shlex.join(["mkdir", str(each)])
            yield shlex.join(["mount", "--move", str(away), str(each)])
