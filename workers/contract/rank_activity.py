"""How long a rank has been where it is, as its agent measures it. Plain data, no torch, no ray."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RankActivity:
    """One rank now. All times are of its node's monotonic clock, so that no clock is compared with another node's."""

    step: int
    phase: str
    quiet_s: float
    """Since it last moved on to another step or phase."""
    idle_s: float
    """Since it last moved on, wrote output or computed, it or a process below it: at most `quiet_s`."""
    visits: int
    """How often it has left this phase before, in this generation."""
    usual_s: float
    """The longest it was in this phase of late, without the first time; 0 if there was none."""
    paced: int = 0
    """Steps of this generation whose work was measured."""
    work_s: float = 0.0
    """What its training thread usually works for a step: the median of the newest, without waiting for others."""
    ready_s: float = 0.0
    """What it usually waits for a processor in a step, likewise."""
    known_s: float = 0.0
    """The longest that it took a rank of this node for the first time in earlier generations; 0: nobody was there."""
