"""Conversion of torchrun's command line to a job spec. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError

_NAME_LENGTH = 56


@dataclass(frozen=True)
class Flags:
    """Values of torchrun's flags."""

    nnodes: str = "1:1"
    """Number of nodes: `N`, or `MIN:MAX`."""
    nproc_per_node: str = "1"
    max_restarts: int = 0
    module: bool = False
    """True if the program is a module, as after `python -m`."""


def script_spec(program: Sequence[str], flags: Flags, *, cwd: PurePath, name: str) -> dict[str, Any]:
    """Return the spec of a job that runs `program` as torchrun would in the folder `cwd`.

    Args:
        program: Path or module of the program, then its arguments.
        flags: Values of torchrun's flags.
        cwd: Folder that the program runs in.
        name: Name of the job.

    Raises:
        SpecError: a flag has an invalid value.
    """
    what, *args = program
    least, most = _nodes(flags.nnodes)
    ranks = _number(flags.nproc_per_node, "--nproc-per-node")
    runs = {"module": what} if flags.module else {"entrypoint": str(cwd / what)}
    return {
        "name": name,
        "workload": {"kind": "script", **runs, "args": args, "cwd": str(cwd)},
        "layout": {"dp": {"min": least * ranks, "target": most * ranks, "max": most * ranks}},
        "recovery": {"budgets": {"user_error": flags.max_restarts}},
    }


def job_name(program: str, flags: Flags, unique: str) -> str:
    """Return a valid job name made of the program's name and `unique`, which distinguishes its runs."""
    stem = program if flags.module else PurePath(program).stem
    return f"{re.sub('[^a-z0-9]+', '-', stem.lower()).strip('-')[:_NAME_LENGTH] or 'script'}-{unique}"


def _nodes(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    low = _number(least, "--nnodes")
    high = _number(most, "--nnodes") if most else low
    if high < low:
        raise SpecError([FieldIssue("--nnodes", "needs MIN:MAX with MIN <= MAX", text)])
    return low, high


def _number(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        message = "must be an integer ≥ 1; `gpu` and `auto` are not supported, since this machine may not be a node"
        raise SpecError([FieldIssue(flag, message, text)])
    return int(text)
