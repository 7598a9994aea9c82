"""The forecast of a queue: today's jobs in the simulator. Pure.

The work that is left of a job is an estimate. Each forecast names its basis.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.policy.scheduling.entries import RunningJob, WaitingJob
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.simulator.simulator import Arrival, Costs, Outage, Started, simulate

Basis = Literal["progress", "max_duration", "assumed", "given"]
CPU_LIMIT_S = 20.0
_PASS_S = 30.0
_PASSES = 20_000
"""Number of scheduling passes at regular intervals that a forecast needs at most."""


@dataclass(frozen=True)
class QueueJob:
    """A job of the queue or with devices, and the estimate of its work."""

    waiting_job: WaitingJob
    left_s: float
    """Remaining work at the requested size, in seconds."""
    basis: Basis
    """Basis of `left_s`: its steps and their duration, its `max_duration`, an assumption, or the request."""
    parts: tuple[RunningJob, ...] = ()
    """Devices that it has; empty if it waits."""

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.waiting_job.job_id


@dataclass(frozen=True)
class QueueState:
    """Everything that a forecast needs. Times are seconds from now."""

    nodes: Sequence[Node]
    jobs: Sequence[QueueJob]
    quotas: Mapping[str, Quota]
    leaving: Sequence[str] = ()
    """Ids of nodes that leave at once."""


@dataclass(frozen=True)
class Forecast:
    """Start and end of each job, in seconds from now; a job that does not start in the simulated time has none."""

    starts_s: Mapping[str, float]
    ends_s: Mapping[str, float]
    utilisation: float


def forecast(state: QueueState, rule: SchedulingPolicy, horizon_s: float) -> Forecast:
    """Simulate the queue with the policy of the scheduler.

    Raises:
        UnavailableError: the simulation needs more time than a request may use.
    """
    ends_at = time.thread_time() + CPU_LIMIT_S

    def check_time(now_s: float, nodes: Sequence[Node], running: Sequence[RunningJob]) -> None:
        if time.thread_time() > ends_at:
            raise UnavailableError(
                f"the simulation reached {now_s / 3600:.1f} h of {horizon_s / 3600:.1f} h within {CPU_LIMIT_S:g} s; "
                "ask for a shorter horizon_s"
            )

    report = simulate(
        state.nodes,
        [Arrival(0.0, job.waiting_job, job.left_s) for job in state.jobs if not job.parts],
        [Outage(0.0, node_id, 10 * horizon_s) for node_id in state.leaving],
        state.quotas,
        until_s=horizon_s,
        rule=rule,
        costs=Costs(lost_s=0.0),
        pass_interval_s=max(_PASS_S, horizon_s / _PASSES),
        observe=check_time,
        started=[started for job in state.jobs for started in _started(job)],
    )
    return Forecast(report.starts_s, report.ends_s, report.utilisation)


def _started(job: QueueJob) -> list[Started]:
    """Return the parts of a job with devices. Parts after the first are spares, or are about to be released."""
    found = list[Started]()
    for number, part in enumerate(job.parts):
        part_id = job.id if number == 0 else f"{job.id}:{number}"
        waiting_job = replace(job.waiting_job, job_id=part_id)
        left_s = job.left_s if number == 0 else job.left_s * waiting_job.sizes[-1].ranks / part.demand.ranks
        found.append(Started(Arrival(0.0, waiting_job, left_s), replace(part, job_id=part_id)))
    return found
