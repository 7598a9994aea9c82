"""Activity of a rank, as its agent measures it. Plain data, no torch, no ray."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RankActivity:
    """One rank now. All times are of its node's monotonic clock, so that no clock is compared with another node's."""

    step: int
    phase: str
    stalled_s: float
    """Since it last moved on to another step or phase."""
    idle_s: float
    """Since it last moved on, wrote output or computed, it or a process below it: at most `stalled_s`."""
    visits: int
    """Earlier visits of this phase in this generation."""
    usual_s: float
    """The longest it was in this phase of late, without the first time; 0 if there was none."""
    measured_steps: int = 0
    """Steps of this generation whose work was measured."""
    work_s: float = 0.0
    """CPU time of the training thread for a step: the median of the newest steps, without waiting for other ranks."""
    ready_s: float = 0.0
    """Time in a step that the training thread waits for a processor; also a median."""
    earlier_first_s: float = 0.0
    """Longest first visit of this phase by a rank of this node in earlier generations; 0 without one."""
