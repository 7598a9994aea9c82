"""The steps of `regroup apply`: one change of one object each."""

from dataclasses import dataclass, field
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
    """`identity`, `project` or `member`."""
    name: str
    details: tuple[str, ...] = ()
    """Differences: `field: before → after`."""
    request: Request[Any] | None = field(default=None, repr=False, compare=False)
    needs: str | None = None
    """Name of an identity that an earlier step creates, and without which the server refuses this one."""

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.name}" + "".join(f"\n    {detail}" for detail in self.details)
