"""Input and result of one trial of the recovery benchmark."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.workload import RANKS


class TrialError(Exception):
    """The arm did not finish its trial. The message states how far it got."""


@dataclass(frozen=True)
class KillPoint:
    """Point of the SIGKILL. The rank kills itself there, so that all arms fail at the same place."""

    rank: int
    step: int
    phase: str


@dataclass(frozen=True)
class Trial:
    """The figures of one run of one arm."""

    arm: str
    kill_point: KillPoint
    submit_to_first_step_s: float
    """Time from the submit call to the end of the job's first optimizer step."""
    kill_to_first_step_s: float
    """Time from SIGKILL to the end of the restarted job's first optimizer step. That step may repeat an earlier one."""
    kill_to_new_step_s: float
    """Time from SIGKILL to the end of the first step that had not been committed before."""
    steps_lost: int
    """Number of committed steps that the job had to repeat."""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    kill_to_full_strength_s: float | None = None
    """Time from SIGKILL to the end of the first step of all ranks. None if the arm cannot continue with fewer ranks."""


def draw_kill_point(
    draw: random.Random,
    first_step: int,
    last_step: int,
    phases: Sequence[str] = ("forward", "backward", "optimizer"),
) -> KillPoint:
    """Draw a random rank, step and phase."""
    return KillPoint(
        rank=draw.randrange(RANKS),
        step=draw.randint(first_step, last_step),
        phase=draw.choice(phases),
    )
