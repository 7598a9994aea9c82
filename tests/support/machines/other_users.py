"""Processes of other users, and a Python that all of them can run.

The interpreter of a test may be below a home that only root can enter. A mount namespace shows its folder to everyone,
and nothing else of that home. The machine itself does not change.
"""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST_USER, LAST_USER = 200_000, 265_535
"""Users that no other program of a machine has."""
USER = 199_999
"""A user outside of that range."""


def python_for_all(folder: Path) -> Path:
    """Write a program into `folder` that runs this Python where every user can enter its folder; return its path."""
    program = folder / "python-for-all"
    real = Path(sys.executable).resolve()
    closed = next((each for each in reversed(real.parents) if not each.stat().st_mode & 0o001), None)
    command = f'exec {shlex.quote(sys.executable)} "$@"'
    if closed is not None:
        shown = closed / real.relative_to(closed).parts[0]
        away, home, kept = folder / "kept", shlex.quote(str(closed)), shlex.quote(str(shown))
        away.mkdir()
        mounts = (
            f"mount --bind {kept} {shlex.quote(str(away))} && mount -t tmpfs -o mode=755 tmpfs {home} && "
            f"mkdir {kept} && mount --move {shlex.quote(str(away))} {kept}"
        )
        inside = f"{mounts} && {command}"
        command = f'exec unshare --mount --propagation private sh -c {shlex.quote(inside)} sh "$@"'
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    return program


def run_as(
    user: int, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program as a user without other groups, to its end."""
    return subprocess.run(
        [str(word) for word in command], user=user, group=user, extra_groups=[], env=environment, cwd="/",
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
