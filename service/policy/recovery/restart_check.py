"""Compare the states of steps that a job took twice: once without a restart, and once after one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Digests = Mapping[int, Mapping[int, Mapping[str, str]]]
"""Step → rank → name of a part of the state → its digest."""

_NAMED = 5


@dataclass(frozen=True)
class StateDifference:
    """The first step after which the states differ."""

    step: int | None
    """None if it is unknown which step it is: the first one after the restart."""
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    """Parts that differ on any rank, in alphabetical order."""

    def to_error(self) -> dict[str, Any]:
        """Return the difference as the `error` of a job."""
        places = {"after_step": self.step, "ranks": list(self.ranks), "parts": list(self.names)}
        return {"kind": "StateDifference", "message": str(self), **places}

    def __str__(self) -> str:
        named = ", ".join(self.names[:_NAMED]) + (", …" if len(self.names) > _NAMED else "")
        ranks = f"rank{'' if len(self.ranks) == 1 else 's'} {', '.join(map(str, self.ranks))}"
        parts = "1 part" if len(self.names) == 1 else f"{len(self.names)} parts"
        step = "the first step" if self.step is None else f"step {self.step}"
        return f"after {step}, {parts} of the state of {ranks} changed: {named}"


def find_difference(before: Digests, after: Digests) -> StateDifference | None:
    """Return the first difference, or None if all states are equal.

    Args:
        before: digests of the run without a restart.
        after: digests of the run from the restored state, of the same steps and ranks.
    """
    for step in sorted(before):
        different: dict[int, set[str]] = {}
        for rank, parts in before[step].items():
            other = after[step][rank]
            names = {name for name in parts.keys() | other.keys() if parts.get(name) != other.get(name)}
            if names:
                different[rank] = names
        if different:
            return StateDifference(step, tuple(sorted(different)), tuple(sorted(set().union(*different.values()))))
    return None


@dataclass(frozen=True)
class ProgramOverlap:
    """The steps that two generations of a program have both taken so far."""

    start: int | None
    """Step after which the second generation started. 0: at the beginning. None: unknown, because the state after its
    first step equals that after no step of the first generation."""
    steps: tuple[int, ...]
    """Numbers of these steps, in order."""
    difference: StateDifference | None
    is_decided: bool
    """True if a difference was found, or if the second generation has taken every step of the first after `start`."""


def compare_program(before: Digests, after: Digests, start: int | None, world_size: int) -> ProgramOverlap | None:
    """Compare the steps that two generations of a program have both taken; None before the second has taken one.

    Args:
        before: digests of a generation that started from the beginning of the program.
        after: digests of the next generation.
        start: step after which it started, as far as its optimizer shows. None or 0, which an optimizer without state
            shows, too: the states decide.
        world_size: number of ranks. Steps without a digest of every rank are ignored.
    """
    before, after = (_complete(digests, world_size) for digests in (before, after))
    if not before or not after:
        return None
    first = min(after)
    if not start:
        start = next((step - 1 for step in sorted(before) if before[step] == after[first]), None)
    if start is None:
        closest = min(before, key=lambda step: (_count_differences(before[step], after[first]), -step))
        difference = find_difference({closest: before[closest]}, {closest: after[first]})
        return ProgramOverlap(None, (), difference and replace(difference, step=None), is_decided=True)
    shifted = {step - first + start + 1: ranks for step, ranks in after.items()}
    steps = tuple(sorted(before.keys() & shifted.keys()))
    difference = find_difference({step: before[step] for step in steps}, shifted)
    return ProgramOverlap(start, steps, difference, difference is not None or max(shifted) >= max(before))


def _complete(digests: Digests, world_size: int) -> Digests:
    return {step: ranks for step, ranks in digests.items() if len(ranks) == world_size}


def _count_differences(before: Mapping[int, Mapping[str, str]], after: Mapping[int, Mapping[str, str]]) -> int:
    return sum(
        parts.get(name) != after[rank].get(name)
        for rank, parts in before.items()
        for name in parts.keys() | after[rank]
    )


def is_complete(digests: Digests, steps: tuple[int, ...], world_size: int) -> bool:
    """Return True if there is a digest of every rank for every step."""
    return all(len(digests.get(step, {})) == world_size for step in steps)
