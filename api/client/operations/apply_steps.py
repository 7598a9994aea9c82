"""The steps of `regroup apply`: one change of one object each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from regroup.api.client.connection.requests import Request


class StepAction(StrEnum):
    """The effect of a step on its object."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True)
class ApplyStep:
    """One change of one object."""

    action: StepAction
    kind: str
    """`identity`, `project`, `member`, `secret` or `hook`."""
    name: str
    details: tuple[str, ...] = ()
    """Differences: `field: before → after`."""
    request: Request[Any] | None = field(default=None, repr=False, compare=False)
    needs: str | None = None
    """Name of an identity that an earlier step creates, and without which the server refuses this one."""

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.name}" + "".join(f"\n    {detail}" for detail in self.details)


def differences_of(pairs: Mapping[str, tuple[object, object]]) -> dict[str, str]:
    """Return the fields whose two values differ: name → `before → after`."""
    return {name: f"{_shown(one)} → {_shown(other)}" for name, (one, other) in pairs.items() if one != other}


def lines_of(differences: Mapping[str, str]) -> tuple[str, ...]:
    """Return one line for each difference."""
    return tuple(f"{name}: {change}" for name, change in differences.items())


def matching(request: Request[Any], etag: str) -> Request[Any]:
    """Return the request with the condition that its object still has this entity tag."""
    return replace(request, headers={**request.headers, "If-Match": etag})


def _shown(value: object) -> str:
    match value:
        case True:
            return "yes"
        case False:
            return "no"
        case None:
            return "none"
        case list() | tuple():
            items: Sequence[object] = value
            return ", ".join(map(str, items)) or "none"
        case dict():
            pairs: Mapping[object, object] = value
            return ", ".join(f"{name}={each}" for name, each in pairs.items()) or "none"
        case _:
            return str(value)
