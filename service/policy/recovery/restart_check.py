"""Compare the states of steps that a job took twice: once straight on, and once after a restart from memory. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Digests = Mapping[int, Mapping[int, Mapping[str, str]]]
"""Step → rank → name of a part of the state → its digest."""

_NAMED = 5


@dataclass(frozen=True)
class StateDifference:
    """The first step after which the states differ."""

    step: int
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
        return f"after step {self.step}, {parts} of the state of {ranks} changed: {named}"


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


def is_complete(digests: Digests, steps: tuple[int, ...], world_size: int) -> bool:
    """Return True if there is a digest of every rank for every step."""
    return all(len(digests.get(step, {})) == world_size for step in steps)
