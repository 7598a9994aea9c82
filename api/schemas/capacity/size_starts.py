"""Wire models of `/v1/jobs/{job}/starts`. Times: Unix seconds."""

from typing import Literal

from regroup.api.schemas.wire import Wire
from regroup.service.domain.layout import Layout


class SizeStart(Wire):
    """The predicted start of a queued job with one size."""

    ranks: int
    """Number of ranks."""
    layout: Layout
    """Parallel degrees of the size."""
    is_legal: bool
    """True if the spec permits the size: a resize of the queued job is enough. Others need another spec."""
    is_requested: bool
    """True for the requested size."""
    start_s: float | None
    """Predicted start; null if it is beyond the simulated week."""
    is_now: bool
    """True if the job starts in the next pass of the scheduler."""
    confidence: Literal["high", "medium", "low"]
    """Confidence in the start: `high` if enough devices are free now, `medium` if the ends of all running jobs are
    known, else `low`."""
    basis: str
    """Reason for the confidence, for people."""


class SizeStarts(Wire):
    """Predicted starts of a queued job: the requested size, then smaller ones until one starts now."""

    starts: list[SizeStart]
    """The sizes, at most 7, the largest first."""
