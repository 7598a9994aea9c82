"""How a job meets failures: how many it takes, and when ranks that stand still have failed."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regroup.service.spec.types import AutoDuration, AutoOrOffDuration, Duration, Positive, SpecModel, parse_off


class Budgets(SpecModel):
    """Failures of one cause allowed inside the window before the job is FAILED."""

    rank_exit: int = Field(default=10, ge=0)
    """Ranks, store or zygote that ended by a signal or without a word."""
    node_loss: int = Field(default=5, ge=0)
    """Nodes or agents that fell silent."""
    hang: int = Field(default=5, ge=0)
    """Generations in which no rank moved on."""
    io_error: int = Field(default=5, ge=0)
    """Connection, timeout and storage errors in training code."""
    device_error: int = Field(default=3, ge=0)
    """A GPU out of memory, or a context that an error spoiled: new processes try once more. Twice at one step is no
    accident, and ends the job."""
    non_finite: int = Field(default=3, ge=0)
    """Steps without finite numbers that are done again, or skipped (`recovery.non_finite`)."""
    loss_spike: int = Field(default=3, ge=0)
    """Steps that are done again because their loss or gradient norm stands out; further ones are told, and trained
    on."""
    silent_corruption: int = Field(default=3, ge=0)
    """Ranks found to differ in what they should hold alike."""
    user_error: int = Field(default=0, ge=0)
    """Every other error of the training code: torchrun's --max-restarts. With 0 the first one ends the job."""


class Hang(SpecModel):
    """When ranks that do not move on are ended and started anew, after their stacks were taken."""

    after: AutoOrOffDuration = "auto"
    """Time in which no rank moves on. `auto` learns it from the job's own steps: three of them, at least 8 s; for a
    script ten, at least five minutes, in which it neither computes nor prints. `off`: never."""
    first_step: AutoDuration = "auto"
    """The same where nothing is learned yet: joining, restoring, the first steps, checkpoints, and whatever a script
    does before its first step. `auto`: 30 minutes; a script may compute or print for longer."""


class Recovery(SpecModel):
    """When to stop retrying, and when to begin."""

    budgets: Budgets = Budgets()
    """Allowed failures per cause."""
    window: Duration = 3600.0
    """Failures older than this are forgiven."""
    refill_steps: Positive = 100
    """So many committed steps forgive one failure of each cause."""
    spares: int = Field(default=0, ge=0, le=16)
    """Nodes that are held ready to take the place of one that is lost or leaves: each has room for the ranks of the
    job's largest node, its agent, Python and data. They are taken once the job trains and nobody waits for the room,
    and count in all that the project holds."""
    hang: Hang = Hang()
    """Ranks that stand still."""
    non_finite: Literal["rollback", "skip", "fail"] = "rollback"
    """When a step's loss or gradient norm is no number: `rollback` does it again, from the newest state before it, and
    ends the job if it comes out so again; `skip` goes on without that update; `fail` ends the job. An overflow that a
    float16 loss scale answers is none of this."""
    loss_spike: Annotated[Literal["off", "warn", "rollback"], BeforeValidator(parse_off)] = "warn"
    """When a step's loss or gradient norm stands out from those of the 64 steps before it: `warn` says so (event
    `loss_spike`); `rollback` does the step once more, from the newest state before it, as often as its budget allows,
    and goes on with what that comes to."""
    verify_replicas: bool | Literal["auto"] = "auto"
    """Whether ranks compare, at each snapshot, what several of them hold alike; where they differ, the job goes back to
    the newest state in which they did not. `auto`: not in functions, whose ranks may differ on purpose."""
