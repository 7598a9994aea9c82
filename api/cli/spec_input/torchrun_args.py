"""torchrun's command line as a job spec. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError

_NAME_LENGTH = 56


@dataclass(frozen=True)
class Flags:
    """What torchrun was told before its program."""

    nnodes: str = "1:1"
    """`N`, or `MIN:MAX`."""
    nproc_per_node: str = "1"
    max_restarts: int = 0
    module: bool = False
    """The program is a module, as after `python -m`."""


def script_spec(program: Sequence[str], flags: Flags, *, cwd: PurePath, name: str) -> dict[str, Any]:
    """The spec of a job that runs `program`, its path or module first, as torchrun would from the folder `cwd`.

    Raises:
        SpecError: a flag says what no job can be.
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
    """A legal job name that tells which program it is; `unique` tells runs of it apart."""
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
        message = "needs a number from 1; how many devices the nodes have is not known where this is typed"
        raise SpecError([FieldIssue(flag, message, text)])
    return int(text)
