"""Wire models of `/v1/what-if`. Times: Unix seconds."""

from typing import Literal

from regroup.api.schemas.wire import Wire


class JobForecast(Wire):
    """A job with and without the change. A time is null if it is beyond the simulated time."""

    id: str
    """Id of the job; `added:` and its name for a job that the request adds."""
    name: str
    """Name of the job."""
    project: str
    """Project of the job."""
    ranks: int
    """Number of devices that it has or requests."""
    is_running: bool
    """True if it has devices now. Its start is that after a node that leaves; null if it is not interrupted."""
    is_added: bool
    """True if the request adds it."""
    is_cancelled: bool
    """True if the request cancels it."""
    start_before_s: float | None
    """Predicted start without the change."""
    start_after_s: float | None
    """Predicted start with the change."""
    end_before_s: float | None
    """Predicted end without the change."""
    end_after_s: float | None
    """Predicted end with the change."""
    basis: Literal["progress", "max_duration", "assumed", "given"]
    """Basis of its remaining time: `progress` (its steps and their duration), `max_duration` of its spec, `assumed`
    (`assumed_s` of the request), `given` (by the request)."""


class WaitForecast(Wire):
    """Waits of the queued jobs, from now. A job that does not start in the simulated time counts with that time."""

    jobs: int
    """Number of jobs that wait with and without the change."""
    median_before_s: float
    """Median wait without the change, in seconds."""
    median_after_s: float
    """Median wait with the change, in seconds."""
    earlier: int
    """Number of jobs that start earlier with the change."""
    later: int
    """Number of jobs that start later with the change."""
    never_before: int
    """Number of jobs that do not start in the simulated time without the change."""
    never_after: int
    """Number of jobs that do not start in the simulated time with the change."""


class WhatIf(Wire):
    """The queue of now, simulated with and without a change."""

    summary: str
    """The result in one sentence, for people."""
    now_s: float
    """Time at which the simulation begins."""
    horizon_s: float
    """Simulated time, in seconds."""
    jobs: list[JobForecast]
    """Jobs of the projects that you see: those that wait first, by their start."""
    waits: WaitForecast
    """Waits of the queued jobs that you see."""
    projects: dict[str, WaitForecast]
    """Project → waits of its queued jobs."""
    hidden_jobs: int
    """Number of jobs of other projects that take part in the simulation."""
    utilisation_before: float
    """Share of the device time that is allocated without the change."""
    utilisation_after: float
    """Share of the device time that is allocated with the change."""
