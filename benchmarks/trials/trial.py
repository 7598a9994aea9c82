"""What one trial of the recovery benchmark is asked for and yields."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.workload import RANKS


class TrialError(Exception):
    """The arm did not come to the end of its trial. The message says how far it came."""


@dataclass(frozen=True)
class Strike:
    """Where SIGKILL falls: the rank kills itself there, so that all arms are hit at the same place."""

    rank: int
    step: int
    phase: str


@dataclass(frozen=True)
class Trial:
    """The figures of one run of one arm."""

    arm: str
    strike: Strike
    submit_to_first_step_s: float
    """From the call that submits to the end of the job's first optimizer step."""
    kill_to_first_step_s: float
    """From SIGKILL to the end of the first optimizer step of the restarted job, whether it repeats a step or not."""
    kill_to_new_step_s: float
    """From SIGKILL to the end of the first step that had never been committed before."""
    steps_lost: int
    """Committed steps that had to be done again."""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    kill_to_full_strength_s: float | None = None
    """From SIGKILL to the end of the first step of all ranks, where fewer may go on meanwhile; None: they may not."""


def draw_strike(
    draw: random.Random,
    first_step: int,
    last_step: int,
    phases: Sequence[str] = ("forward", "backward", "optimizer"),
) -> Strike:
    """A random rank, step and phase."""
    return Strike(
        rank=draw.randrange(RANKS),
        step=draw.randint(first_step, last_step),
        phase=draw.choice(phases),
    )
