"""Wire models of `/v1/jobs/{job}/ranks`."""

from regroup.api.schemas.wire import Wire
from regroup.service.operations.ranks import RankState


class RankView(Wire):
    """One rank of the newest generation."""

    rank: int
    """Number of the rank."""
    node: str
    """Permanent name of its node."""
    node_id: str
    """Id of its node in Ray."""
    local_rank: int
    """Number of the rank among the job's ranks on its node."""
    device: str
    """Index of its device on the node; empty without one."""
    state: RankState
    """State relative to the other ranks: `works`, `waits`, `slow`, `crowded`, `behind` or `unknown`."""
    step: int | None
    """Step in which it is; null before its first report."""
    phase: str | None
    """Phase of that step, for example `backward`."""
    work_s: float | None
    """Seconds of a step in which it computes: the median of its newest steps; null until it is measured."""
    ready_s: float | None
    """Seconds of a step in which it waits for a processor."""
    wait_s: float | None
    """The rest of a step, in which it waits for other ranks or for data."""
    stalled_s: float | None
    """Seconds since it moved on to another step or phase."""
    factor: float | None
    """Work of the rank, divided by the median of all ranks."""


class RankViewList(Wire):
    """A page of the ranks of the newest generation, by number."""

    generation: int
    """Number of the generation; 0 before the first one."""
    total: int
    """Number of its ranks."""
    counts: dict[str, int]
    """Number of all its ranks by state."""
    step_s: float | None
    """Moving average of the time of a step, in seconds."""
    median_work_s: float | None
    """Median of the work of all ranks in a step, in seconds."""
    ranks: list[RankView]
    """The ranks of this page."""
