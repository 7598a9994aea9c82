"""Verdict of a restart check as lines: the parts of the state that differ, and the remedy. Pure."""

import re
from collections.abc import Mapping, Sequence

from regroup.api.client.restart_check import RestartVerdict

_OWN = re.compile(r"^own(?:-part)?:\d+:")
_KINDS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("optimizers", ("optim.", "optim:", "optimizers ")),
    ("buffers", ("buffer.",)),
    ("modules", ("modules ",)),
    ("other objects", ("state:", "stateful ")),
    ("random generators", ("random",)),
)
"""Kind of the owner → prefixes of the names of its parts. Any other part is a parameter."""
_PARAMETERS = "parameters"
_PROGRAMS = ("script", "ray_train")
"""Kinds of workloads that save their own state."""
_SHOWN = 8
"""Most parts that are named for one kind."""

_TRACK = (
    "Something that training changes is not tracked, so the second run began with another value of it. Pass every such "
    "object to run.track() before the first step: optimizers, schedules, scalers, averages, counters, positions in "
    "data. A plain number or list needs an object with state_dict() and load_state_dict()."
)
_DRAWS = (
    "Only random generators differ: after the restart, the function draws another number of random numbers. Search for "
    "draws that happen once in a process, such as a shuffle in the first step."
)
_SAVE = (
    "The program's checkpoint lacks something that training changes, or the program does not load it. Save and load "
    "the model, optimizers, schedules, scalers, the position in the data, and the state of random generators. A "
    "program without a seed differs in any case."
)
_BUILTIN = "The built-in trainer tracks its whole state: report this with `regroup evidence`."
_CUDA = "On CUDA, first set determinism: strict. Without it, two runs of the same steps may differ."


def render_verdict(verdict: RestartVerdict, workload: str) -> list[str]:
    """Return the verdict as lines. `workload` is the kind of the job's workload."""
    source = "the program's checkpoint" if workload in _PROGRAMS else "memory"
    if verdict.outcome == "equal":
        return [f"EQUAL: a restart from {source} changes nothing: {verdict.message} on every rank"]
    if verdict.outcome == "not_compared":
        return [f"NOT COMPARED: {verdict.message}", f"→ `regroup why {verdict.job_id}` shows the cause."]
    ranks = f"rank{'' if len(verdict.ranks) == 1 else 's'} {', '.join(map(str, verdict.ranks))}"
    step = "its first step" if verdict.after_step is None else f"step {verdict.after_step}"
    lines = [f"DIFFERENT: a restart from {source} changes the state after {step} on {ranks}"]
    found = group_parts(verdict.parts)
    width = max(map(len, found), default=0)
    lines += [f"  {kind:<{width}}  {_names(names)}" for kind, names in found.items()]
    return [*lines, *(f"→ {advice}" for advice in _advice(found, workload))]


def group_parts(parts: Sequence[str]) -> dict[str, list[str]]:
    """Return the kind of the owner → the parts of a state, both in the order of a state."""
    grouped: dict[str, list[str]] = {kind: [] for kind in (_PARAMETERS, *(kind for kind, _ in _KINDS))}
    for part in parts:
        name = _OWN.sub("", part)
        kind = next((kind for kind, prefixes in _KINDS if name.startswith(prefixes)), _PARAMETERS)
        if name not in grouped[kind]:
            grouped[kind].append(name)
    return {kind: names for kind, names in grouped.items() if names}


def _advice(found: Mapping[str, Sequence[str]], workload: str) -> list[str]:
    if workload == "builtin":
        return [_CUDA, _BUILTIN]
    if workload in _PROGRAMS:
        return [_SAVE, _CUDA]
    return [_DRAWS if set(found) == {"random generators"} else _TRACK, _CUDA]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f", and {more} more" if more > 0 else "")
