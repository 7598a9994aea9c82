"""Conversion of torchrun's command line to a job spec. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError

DEVICE_WORDS = ("gpu", "cpu", "auto")
"""Values of `--nproc-per-node` for one rank on each device of a node."""
_CHILD_PROGRAM = "regroup.workers.rank.child_program"
"""Module that runs a program which is not Python."""
_NAME_LENGTH = 56
_MAX_RANKS_PER_NODE = 1024
_SHOWN_NODES = 4


@dataclass(frozen=True)
class Flags:
    """Values of torchrun's flags."""

    nnodes: str = "1:1"
    """Number of nodes: `N`, or `MIN:MAX`."""
    nproc_per_node: str = "1"
    """Number of ranks per node, or one of `DEVICE_WORDS`."""
    max_restarts: int = 0
    role: str = "default"
    module: bool = False
    """True if the program is a module, as after `python -m`."""
    no_python: bool = False
    """True if the program is not a Python file."""


@dataclass(frozen=True)
class NodeDevices:
    """Devices of a node of the cluster."""

    name: str
    cpus: float
    gpus: float


def script_spec(
    program: Sequence[str], flags: Flags, *, cwd: PurePath, name: str, nodes: Sequence[NodeDevices] = ()
) -> dict[str, Any]:
    """Return the spec of a job that runs `program` as torchrun would in the folder `cwd`.

    Args:
        program: Path or module of the program, then its arguments.
        flags: Values of torchrun's flags.
        cwd: Folder that the program runs in.
        name: Name of the job.
        nodes: Nodes of the cluster, for a number of ranks that follows their devices.

    Raises:
        SpecError: a flag has an invalid value.
    """
    what, *args = program
    least, most = _nodes(flags.nnodes)
    ranks, device = _ranks_per_node(flags.nproc_per_node, nodes)
    if flags.no_python and flags.module:
        raise SpecError([FieldIssue("--no-python", "conflicts with --module: remove one of them")])
    if flags.no_python:
        runs, args = {"module": _CHILD_PROGRAM}, [what, *args]
    else:
        runs = {"module": what} if flags.module else {"entrypoint": str(cwd / what)}
    role = {} if flags.role == Flags.role else {"role": flags.role}
    return {
        "name": name,
        "workload": {"kind": "script", **runs, "args": args, "cwd": str(cwd), **role},
        "layout": {"dp": {"min": least * ranks, "target": most * ranks, "max": most * ranks}},
        "recovery": {"budgets": {"user_error": flags.max_restarts}},
        **({"resources": {"device": device}} if device else {}),
    }


def job_name(program: str, flags: Flags, unique: str) -> str:
    """Return a valid job name made of the program's name and `unique`, which distinguishes its runs."""
    stem = program if flags.module else PurePath(program).stem
    return f"{re.sub('[^a-z0-9]+', '-', stem.lower()).strip('-')[:_NAME_LENGTH] or 'script'}-{unique}"


def counts_devices(flags: Flags) -> bool:
    """Return whether the number of ranks follows the devices of the nodes."""
    return flags.nproc_per_node in DEVICE_WORDS


def ranks_per_node(flags: Flags, nodes: Sequence[NodeDevices] = ()) -> int:
    """Return the number of ranks of each node.

    Raises:
        SpecError: the value is invalid.
    """
    return _ranks_per_node(flags.nproc_per_node, nodes)[0]


def _ranks_per_node(text: str, nodes: Sequence[NodeDevices]) -> tuple[int, str]:
    """Return the number of ranks per node, and their device; empty if the number was given."""
    flag = "--nproc-per-node"
    if text not in DEVICE_WORDS:
        ranks = _number(text, flag, f"must be an integer from 1 to {_MAX_RANKS_PER_NODE}, gpu, cpu or auto")
        if ranks > _MAX_RANKS_PER_NODE:
            raise SpecError([FieldIssue(flag, f"must be at most {_MAX_RANKS_PER_NODE}", text)])
        return ranks, ""
    on_gpus = text == "gpu" or (text == "auto" and any(node.gpus >= 1 for node in nodes))
    counts = {node.name: int(node.gpus if on_gpus else node.cpus) for node in nodes}
    counts = {name: count for name, count in counts.items() if count}
    kind = "GPU" if on_gpus else "CPU"
    if not counts:
        raise SpecError([FieldIssue(flag, f"no node of the cluster has a {kind} now; give the number", text)])
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} on {name}" for name, count in list(counts.items())[:_SHOWN_NODES])
        raise SpecError(
            [FieldIssue(flag, f"the nodes differ in their number of {kind}s ({shown}); give the number", text)]
        )
    return next(iter(counts.values())), "cuda" if on_gpus else "cpu"


def _nodes(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    wrong = "must be a number of nodes N, or a range MIN:MAX"
    low = _number(least, "--nnodes", wrong)
    high = _number(most, "--nnodes", wrong) if ":" in text else low
    if high < low:
        raise SpecError([FieldIssue("--nnodes", "needs MIN:MAX with MIN <= MAX", text)])
    return low, high


def _number(text: str, flag: str, wrong: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text)):
        raise SpecError([FieldIssue(flag, wrong, text[:40])])
    return int(text)
