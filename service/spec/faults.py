"""Faults section of a job spec: failures to inject, with their place and time."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import MAX_RANKS, MAX_STEPS, Duration, Integer, Number, SpecModel, Steps

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
    "corrupt_transfer",
    "kill_agent_in_transfer",
]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)
_OPTIONAL_FIELDS = {
    "sleep": {"duration"},
    "hold_gil": {"duration"},
    "lose_traffic": {"duration", "share"},
    "slow": {"factor", "steps"},
}
_REQUIRED_FIELDS = {"slow": {"factor", "steps"}, "lose_traffic": {"share"}}


class FaultPoint(SpecModel):
    """The place and time of a fault."""

    rank: Annotated[Integer, Field(ge=0, lt=MAX_RANKS)] | None = None
    """Rank to fault. Mutually exclusive with `node`."""
    node: Annotated[Integer, Field(ge=0, lt=MAX_RANKS)] | None = None
    """Node to fault, numbered from 0 in the order of the ranks. The fault acts through the node's first rank. Mutually
    exclusive with `rank`."""
    step: Integer = Field(ge=1, le=MAX_STEPS)
    """Step during which the fault is injected."""
    phase: Literal["forward", "backward", "optimizer", "snapshot", "checkpoint"] = "forward"
    """Phase of that step."""

    @model_validator(mode="after")
    def _check_one_target(self) -> Self:
        if (self.rank is None) == (self.node is None):
            raise PydanticCustomError("fault_place", "set exactly one of rank and node")
        return self


class Fault(SpecModel):
    """A fault to inject. Each fault occurs once in the life of the job and is recorded before it acts. Needs a server
    with --allow-faults."""

    at: FaultPoint
    """Place and time of the fault."""
    do: FaultKind = "sigkill"
    """Kind of fault. Faults of the rank:

    - `sigkill`, `sigstop`, `segfault`, `abort`: the process gets the signal.
    - `raise`: an exception. `loop`: an endless Python loop. `sleep`: the rank sleeps.
    - `hold_gil`: no other Python thread runs.
    - `oom`: the kernel kills the rank in its own cgroup; an exception if no cgroup can be created.
    - `slow`: the rank is a straggler.
    - `cut_traffic`: its TCP connections are closed. `lose_traffic`: they lose incoming packets.
    - `nan_loss`: the next model output is NaN. `spike_loss`: it is multiplied by 1000.
    - `spike_gradient`: the next gradients are multiplied by 1000, the loss is correct.
    - `flip_bit`: one bit of its parameters changes. `flip_snapshot`: one bit of its newest snapshot changes.

    Faults of other processes and the disk:

    - `kill_store`, `kill_zygote`, `kill_agent`, `kill_saver`: the process is killed.
    - `fill_disk`: the disk fills while the next checkpoint is written.
    - `break_disk`: the next checkpoint gets an I/O error while it is written.
    - `corrupt_transfer`: the next state that this node sends for a recovery arrives damaged once.
    - `kill_agent_in_transfer`: the agent is killed while it sends state for a recovery.
    """
    duration: Duration | None = None
    """Duration of `sleep`, `hold_gil` and `lose_traffic`. Default: forever."""
    factor: Annotated[Number, Field(gt=1, le=100)] | None = None
    """For `slow`: factor by which the work of a step is multiplied."""
    share: Annotated[Number, Field(gt=0, le=1)] | None = None
    """For `lose_traffic`: fraction of the incoming packets that is lost; 1 loses all of them."""
    steps: Steps | None = None
    """For `slow`: number of slow steps; ends with the generation."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        given = {name for name in ("duration", "factor", "share", "steps") if getattr(self, name) is not None}
        if unused := sorted(given - _OPTIONAL_FIELDS.get(self.do, set())):
            raise PydanticCustomError(
                "fault", "{field} does not apply to {do}: remove it", {"field": unused[0], "do": self.do}
            )
        if missing := sorted(_REQUIRED_FIELDS.get(self.do, set()) - given):
            raise PydanticCustomError("fault", "{do} needs {field}: set it", {"field": missing[0], "do": self.do})
        return self
