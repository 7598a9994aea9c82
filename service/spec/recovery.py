"""Recovery section of a job spec: failure budgets, hang limits, spares and numeric checks."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regroup.service.spec.types import (
    AutoDuration,
    AutoOrOffDuration,
    Duration,
    Failures,
    Flag,
    Integer,
    SpecModel,
    Steps,
    parse_off,
)


class Budgets(SpecModel):
    """Number of failures per cause that a job survives within the window. One more ends the job as FAILED."""

    rank_exit: Failures = 10
    """Ranks, stores or zygotes that ended by a signal or without an error message."""
    node_loss: Failures = 5
    """Nodes or agents that stopped responding, and failures of Ray itself."""
    hang: Failures = 5
    """Generations in which no rank made progress."""
    io_error: Failures = 5
    """Connection, timeout and storage errors in training code."""
    device_error: Failures = 3
    """GPU out-of-memory errors and CUDA errors. New processes retry once; the same error at the same step ends the
    job."""
    non_finite: Failures = 3
    """Steps with a non-finite loss or gradient norm that are repeated or skipped (`recovery.non_finite`)."""
    loss_spike: Failures = 3
    """Steps that are repeated because their loss or gradient norm spikes. Further spikes are only reported."""
    silent_corruption: Failures = 3
    """Ranks whose replicated state differs from that of the other ranks."""
    user_error: Failures = 0
    """All other errors of the training code, as torchrun's --max-restarts. With 0 the first error ends the job."""


class Hang(SpecModel):
    """Time limits after which ranks without progress are stopped and restarted. Their stacks are recorded first."""

    after: AutoOrOffDuration = "auto"
    """Time without progress of any rank. `auto` learns the limit from the job's own steps: three step times, at least 8
    s. For a script, `auto` means ten step times and at least five minutes, without CPU use and output. `off` disables
    the check."""
    first_step: AutoDuration = "auto"
    """The same limit while no step time is known: during join, restore, first steps and checkpoints, and before the
    first step of a script. `auto`: 30 minutes; a script that computes or prints may take longer."""


class Recovery(SpecModel):
    """Recovery settings: budgets, spares and checks."""

    budgets: Budgets = Budgets()
    """Allowed failures per cause."""
    window: Duration = 3600.0
    """Age at which a failure no longer counts against its budget."""
    refill_steps: Steps = 100
    """Number of committed steps that restores one failure to each budget."""
    spares: Integer = Field(default=0, ge=0, le=16)
    """Number of spare nodes for this job. A spare has capacity for the ranks of the job's largest node and has the
    agent, Python and data prepared. It replaces a node that is lost or drained. Spares are reserved once the job trains
    and no other job waits for the capacity. They count against the project's limit."""
    hang: Hang = Hang()
    """Time limits of the hang detector."""
    non_finite: Literal["rollback", "skip", "fail"] = "rollback"
    """Action if the loss or the gradient norm of a step is non-finite. `rollback`: repeat the step from the newest
    state before it; end the job if the result is non-finite again. `skip`: continue without that update. `fail`: end
    the job. An overflow that a float16 loss scale handles does not count."""
    loss_spike: Annotated[Literal["off", "warn", "rollback"], BeforeValidator(parse_off)] = "warn"
    """Action if the loss or the gradient norm of a step spikes compared with the 64 steps before it. `warn`: emit the
    event `loss_spike`. `rollback`: repeat the step from the newest state before it, within the budget, and accept the
    second result."""
    verify: Annotated[Literal["off", "restart", "restart_only"], BeforeValidator(parse_off)] = "off"
    """`restart`: check once that a restart keeps the whole state of the job. The job restarts from memory after step 4,
    repeats the steps 3 and 4, and compares the state of every rank. If it differs, the job ends and names the parts.
    Needs more than 4 steps. `restart_only`: the same, and the job ends after the comparison in any case, as with
    `regroup run --check`. The only value for scripts and Ray Train programs: they are ended within step 7, 19, 47, 113
    or 277, until one start has continued from a checkpoint of the program, and the steps that it repeats are
    compared."""
    verify_replicas: Flag | Literal["auto"] = "auto"
    """Compare replicated state between ranks at each snapshot. If it differs, the job returns to the newest state in
    which it was equal. `auto`: on, except for functions, whose ranks may differ on purpose."""

    @property
    def verifies_restart(self) -> bool:
        """True if the job restarts once to compare repeated steps."""
        return self.verify != "off"
