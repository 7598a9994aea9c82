"""Simulations of the queue of now, with and without a change of its nodes, quotas or jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from regroup.service.cluster_state import queue as queue_view
from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.node_health import closed, rule_of
from regroup.service.cluster_state.shared_spares import close_shared_spares
from regroup.service.domain.errors import FieldIssue, SpecError, UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.operations.capacity.forecast import Basis, Forecast, QueueJob, QueueState, forecast
from regroup.service.operations.capacity.queue_jobs import QueueRows, queue_jobs, with_released
from regroup.service.operations.capacity.scenario import WhatIfRequest, change_nodes, change_quotas, job_to_add
from regroup.service.policy.scheduling.decide import SchedulingPolicy
from regroup.service.ports.cluster import Cluster
from regroup.service.settings import Settings
from regroup.service.store.store import Store

MAX_JOBS = 3_000
MAX_NODES = 20_000
_SAME_S = 1.0
"""Smallest difference between two times of a forecast that counts."""


@dataclass(frozen=True)
class JobForecast:
    """A job with and without the change. Times are Unix seconds; None beyond the simulated time."""

    id: str
    name: str
    project: str
    ranks: int
    is_running: bool
    is_added: bool
    is_cancelled: bool
    start_before_s: float | None
    start_after_s: float | None
    end_before_s: float | None
    end_after_s: float | None
    basis: Basis

    @property
    def is_compared(self) -> bool:
        """True if the job waits with and without the change."""
        return not (self.is_running or self.is_added or self.is_cancelled)


@dataclass(frozen=True)
class WaitForecast:
    """Waits of queued jobs, in seconds from now. Jobs that do not start count with the simulated time."""

    jobs: int
    median_before_s: float
    median_after_s: float
    earlier: int
    """Number of jobs that start earlier with the change."""
    later: int
    never_before: int
    """Number of jobs that do not start in the simulated time."""
    never_after: int


@dataclass(frozen=True)
class WhatIf:
    """The queue with and without the change."""

    now_s: float
    horizon_s: float
    jobs: tuple[JobForecast, ...]
    waits: WaitForecast
    projects: dict[str, WaitForecast]
    hidden_jobs: int
    """Number of jobs that take part, but whose projects the sender does not see."""
    leaving_nodes: int
    utilisation_before: float
    utilisation_after: float


@dataclass(frozen=True)
class Simulations:
    """Reads the queue of now, and simulates it."""

    store: Store
    cluster: Cluster
    settings: Settings
    clock: Callable[[], float]

    async def run(self, request: WhatIfRequest, sees: Callable[[str], bool]) -> WhatIf:
        """Simulate the queue with and without the changes.

        Args:
            sees: whether the sender sees a project. Jobs of other projects take part, but are not returned.

        Raises:
            SpecError: a node, a domain or a job of the request does not exist.
            UnavailableError: the queue or the cluster is too large, or the simulation takes too long.
        """
        now = self.clock()
        nodes, rows = await self.read(now)
        return await CALCULATIONS.run(compare, request, nodes, rows, queue_view.rule_of(self.settings), now, sees)

    async def read(self, now: float) -> tuple[Sequence[Node], QueueRows]:
        """Return the nodes with their free devices, and the rows about the queue.

        Raises:
            UnavailableError: the queue or the cluster is too large, or one of both does not answer.
        """
        store = self.store
        nodes = await nodes_to_use(store, self.cluster)
        nodes = await close_shared_spares(store, closed(nodes, await store.nodes.events(), now, rule_of(self.settings)))
        rows = QueueRows(
            await store.queued_jobs(),
            await store.live_jobs(),
            await store.live_allocations(),
            await store.queue.projects(),
        )
        _check_size(len(rows.queue) + len(rows.live), MAX_JOBS, "jobs")
        _check_size(len(nodes), MAX_NODES, "nodes")
        return without_allocated(nodes, rows.allocations), rows


def compare(
    request: WhatIfRequest,
    nodes: Sequence[Node],
    rows: QueueRows,
    rule: SchedulingPolicy,
    now: float,
    sees: Callable[[str], bool],
) -> WhatIf:
    """Simulate the queue with and without the changes. Raises the errors of `Simulations.run`."""
    jobs, quotas = queue_jobs(rows, request.assumed_s, now), queue_view.quotas_of(rows.projects)
    visible = [job for job in jobs if sees(job.waiting_job.project)]
    _check_cancelled(request, visible)
    cancelled, changed = set(request.cancel), change_nodes(nodes, request)
    freed = with_released(changed.nodes, [part for job in jobs if job.id in cancelled for part in job.parts])
    staying = [job for job in jobs if job.id not in cancelled]
    added = [QueueJob(job_to_add(job), job.duration_s, "given") for job in request.add_jobs]
    before = forecast(
        QueueState([node for node in nodes if not node.is_control], jobs, quotas), rule, request.horizon_s
    )
    scenario = QueueState(freed, [*staying, *added], change_quotas(quotas, request), changed.leaving)
    after = forecast(scenario, rule, request.horizon_s)
    found = [_job_forecast(job, before, after, now, cancelled) for job in [*visible, *added]]
    compared = [job for job in found if job.is_compared]
    return WhatIf(
        now,
        request.horizon_s,
        tuple(sorted(found, key=lambda job: (job.is_running, job.start_before_s or job.start_after_s or now, job.id))),
        _waits(compared, now, request.horizon_s),
        {
            name: _waits([job for job in compared if job.project == name], now, request.horizon_s)
            for name in sorted({job.project for job in compared})
        },
        len(jobs) - len(visible),
        len(changed.leaving),
        before.utilisation,
        after.utilisation,
    )


def _check_size(count: int, most: int, what: str) -> None:
    if count > most:
        raise UnavailableError(f"a forecast handles at most {most} {what}; there are {count}")


def _check_cancelled(request: WhatIfRequest, jobs: Sequence[QueueJob]) -> None:
    ids = {job.id for job in jobs}
    unknown = [(index, job_id) for index, job_id in enumerate(request.cancel) if job_id not in ids]
    if unknown:
        message = "no such job waits or runs; use the id of a job"
        raise SpecError([FieldIssue.at(("cancel", index), message, job_id) for index, job_id in unknown])


def _job_forecast(job: QueueJob, before: Forecast, after: Forecast, now: float, cancelled: set[str]) -> JobForecast:
    waiting_job = job.waiting_job

    def at(times_s: Mapping[str, float]) -> float | None:
        time_s = times_s.get(job.id)
        return None if time_s is None else now + time_s

    return JobForecast(
        job.id,
        waiting_job.name,
        waiting_job.project,
        job.parts[0].demand.ranks if job.parts else waiting_job.sizes[-1].ranks,
        bool(job.parts),
        job.basis == "given",
        job.id in cancelled,
        at(before.starts_s),
        at(after.starts_s),
        at(before.ends_s),
        at(after.ends_s),
        job.basis,
    )


def _waits(jobs: Sequence[JobForecast], now: float, horizon_s: float) -> WaitForecast:
    before = [horizon_s if job.start_before_s is None else job.start_before_s - now for job in jobs]
    after = [horizon_s if job.start_after_s is None else job.start_after_s - now for job in jobs]
    pairs = list(zip(before, after, strict=True))
    return WaitForecast(
        len(jobs),
        median(before) if jobs else 0.0,
        median(after) if jobs else 0.0,
        sum(late - early > _SAME_S for late, early in pairs),
        sum(late - early > _SAME_S for early, late in pairs),
        sum(job.start_before_s is None for job in jobs),
        sum(job.start_after_s is None for job in jobs),
    )
