"""Wire models of `/v1/jobs/{job}/stacks`."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict


class RankStack(BaseModel):
    """Where every thread of one rank is."""

    model_config = ConfigDict(frozen=True)

    rank: int
    node: str
    """Name of its node."""
    pid: int
    step: int | None
    """The step it works on."""
    phase: str | None
    text: str
    """Python stacks, newest call first; or why it does not answer."""


class Stacks(BaseModel):
    """Where a job's ranks are now, in rank order."""

    model_config = ConfigDict(frozen=True)

    ranks: list[RankStack]


def rank_stack(rank: int, found: Mapping[str, Any]) -> RankStack:
    """One rank's stacks as its agent told them."""
    step, phase = found["place"] or (None, None)
    return RankStack(rank=rank, node=found["node"], pid=found["pid"], step=step, phase=phase, text=found["text"])
