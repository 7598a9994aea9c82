"""Rehearsed failures as a job spec writes them: where each strikes, and what happens there."""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Duration, Positive, SpecModel

FaultKind = Literal[
    "sigkill",
    "sigstop",
    "raise",
    "segfault",
    "abort",
    "loop",
    "sleep",
    "hold_gil",
    "oom",
    "slow",
    "cut_traffic",
    "lose_traffic",
    "nan_loss",
    "spike_loss",
    "spike_gradient",
    "flip_bit",
    "flip_snapshot",
    "kill_store",
    "kill_zygote",
    "kill_agent",
    "kill_saver",
    "fill_disk",
    "break_disk",
]
STRIKES: tuple[str, ...] = get_args(FaultKind)
_MAY_SAY = {
    "sleep": {"duration"},
    "hold_gil": {"duration"},
    "lose_traffic": {"duration", "share"},
    "slow": {"factor", "steps"},
}
_MUST_SAY = {"slow": {"factor", "steps"}, "lose_traffic": {"share"}}


class FaultPoint(SpecModel):
    """Where a fault strikes."""

    rank: int | None = Field(default=None, ge=0)
    """The rank that is struck. Or give `node`."""
    node: int | None = Field(default=None, ge=0)
    """The node that is struck, in the order of the ranks from 0, through the first rank there. Or give `rank`."""
    step: int = Field(ge=1)
    """The step during which it is struck."""
    phase: Literal["forward", "backward", "optimizer", "snapshot", "checkpoint"] = "forward"
    """The phase of that step."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.rank is None) == (self.node is None):
            raise PydanticCustomError("fault_place", "give exactly one of rank and node")
        return self


class Fault(SpecModel):
    """A rehearsal: strikes once in the job's life, recorded before it acts; needs a server with --allow-faults."""

    at: FaultPoint
    """Where it strikes."""
    do: FaultKind = "sigkill"
    """What happens. To the rank itself: `sigkill`, `sigstop`, `raise` (an exception), `segfault`, `abort`, `loop` (in
    Python, without end), `sleep`, `hold_gil` (no other thread of Python runs), `oom` (killed by the kernel in a cgroup
    of its own; an exception where none can be made), `slow` (a straggler), `cut_traffic` (its TCP
    connections end), `lose_traffic` (they lose packets that come in), `nan_loss` (the next output of its model is
    no number), `spike_loss` (it is a thousand times as large), `spike_gradient` (its next gradients are, and its loss
    is right), `flip_bit` (one bit of its parameters is changed), `flip_snapshot` (one bit of its newest snapshot in
    memory). To what is beside it: `kill_store`,
    `kill_zygote`, `kill_agent`, `kill_saver`, `fill_disk` (the next checkpoint finds no room on its node's
    disk), `break_disk` (it finds errors of input and output there)."""
    duration: Duration | None = None
    """Of `sleep`, `hold_gil` and `lose_traffic`; for ever if absent."""
    factor: float | None = Field(default=None, gt=1, le=100)
    """Of `slow`: so many times the work of a step."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Of `lose_traffic`: how much of what comes in is lost; 1: all of it."""
    steps: Positive | None = None
    """Of `slow`: for so many steps, at most until its generation ends."""

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        given = {name for name in ("duration", "factor", "share", "steps") if getattr(self, name) is not None}
        if odd := sorted(given - _MAY_SAY.get(self.do, set())):
            raise PydanticCustomError(
                "fault", "{field} does not apply to {do}: leave it out", {"field": odd[0], "do": self.do}
            )
        if missing := sorted(_MUST_SAY.get(self.do, set()) - given):
            raise PydanticCustomError("fault", "{do} needs {field}", {"field": missing[0], "do": self.do})
        return self
