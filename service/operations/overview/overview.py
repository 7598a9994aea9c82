"""Use case of the overview: running and waiting jobs, problems that need a person, incidents of the last day."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.cluster_state.clusters import ClusterState
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import JobState
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.nodes import Nodes, NodeState
from regroup.service.operations.overview.attention import Attention, find_attention
from regroup.service.operations.overview.device_use import DeviceUse, measure_device_use
from regroup.service.operations.overview.summary import describe_health
from regroup.service.policy.access.decision import is_allowed_in_cluster, projects_with
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.store.overview import LiveJob, RecentIncident, WindowUse
from regroup.service.store.rows.records import PLACEABLE
from regroup.service.store.store import Store

DAY_S = 86_400.0
_DAYS = 7
_GOODPUT_VALID_S = 60.0
_MOST_INCIDENTS = 50
_MOST_ATTENTION = 50
_MOST_REASONS = 20


@dataclass(frozen=True)
class QueueReason:
    """Jobs that wait for the same reason."""

    reason: str
    message: str
    """Reason of one of them, for people."""
    jobs: int
    example: LiveJob


@dataclass(frozen=True)
class GoodputDay:
    """Goodput of 24 hours."""

    start_s: float
    end_s: float
    goodput: float | None
    device_hours: float


@dataclass(frozen=True)
class Overview:
    """The state of the server, as far as one identity may see it."""

    time_s: float
    summary: str
    jobs: Mapping[JobState, int]
    ended: Mapping[JobState, int]
    devices: DeviceUse | None
    attention: Sequence[Attention]
    attention_total: int
    queue: Sequence[QueueReason]
    incidents: Sequence[RecentIncident]
    incidents_total: int
    goodput: Sequence[GoodputDay]


@dataclass(frozen=True)
class _Week:
    """Use of the last days. It is summed over many jobs, so it is kept for a minute."""

    at_s: float
    windows: Sequence[tuple[float, float]]
    by_project: Mapping[str, Sequence[WindowUse]]


class Overviews:
    """Use case of the overview. The cost grows with the jobs that have not ended, not with the history.

    Args:
        clusters: lists the clusters, with the reason why one does not answer.
        clock: Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        nodes: Callable[[], Nodes],
        clusters: Callable[[], Awaitable[Sequence[ClusterState]]],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._nodes, self._clusters, self._clock = store, nodes, clusters, clock
        self._week: _Week | None = None
        self._measuring = asyncio.Lock()

    async def get(self, sender: Sender) -> Overview:
        """Return the overview of what the sender may see."""
        now, store = self._clock(), self._store
        visible = projects_with(sender.identity, Permission.JOBS_READ)
        with_hooks = projects_with(sender.identity, Permission.HOOKS_READ)
        sees_nodes = is_allowed_in_cluster(sender.identity, ClusterPermission.NODES_READ)
        everything, rows = await asyncio.gather(store.overview.live_jobs(), store.live_allocations())
        jobs = [job for job in everything if visible is None or job.project in visible]
        ended, (incidents, incidents_total), hooks, week, (nodes, clusters) = await asyncio.gather(
            store.overview.ended(now - DAY_S, visible),
            store.overview.incidents(now - DAY_S, [job.id for job in jobs], visible, _MOST_INCIDENTS),
            store.overview.failing_hooks(with_hooks, _MOST_ATTENTION),
            self._use_of_week(now),
            self._read_cluster(sees_nodes),
        )
        devices = measure_device_use(nodes, everything, rows) if sees_nodes else None
        attention = find_attention(jobs, nodes, clusters, hooks)
        silent = sum(bool(each.problem) for each in clusters)
        return Overview(
            now,
            describe_health(jobs, nodes, devices, silent),
            Counter(job.state for job in jobs),
            ended,
            devices,
            attention[:_MOST_ATTENTION],
            len(attention),
            count_reasons(jobs)[:_MOST_REASONS],
            incidents,
            incidents_total,
            goodput_days(
                week.windows, [use for name, use in week.by_project.items() if visible is None or name in visible]
            ),
        )

    async def _read_cluster(self, sees_nodes: bool) -> tuple[list[NodeState], Sequence[ClusterState]]:
        if not sees_nodes:
            return [], []
        clusters = await self._clusters()
        try:
            return await self._nodes().list_nodes(), clusters
        except UnavailableError:
            if not any(each.problem for each in clusters):
                clusters = [replace(each, problem="it stopped to answer a moment ago") for each in clusters]
            return [], clusters

    async def _use_of_week(self, now: float) -> _Week:
        async with self._measuring:
            if self._week is None or not 0 <= now - self._week.at_s < _GOODPUT_VALID_S:
                windows = [(now - (day + 1) * DAY_S, now - day * DAY_S) for day in reversed(range(_DAYS))]
                self._week = _Week(now, windows, await self._store.overview.use(windows))
            return self._week


def count_reasons(jobs: Iterable[LiveJob]) -> list[QueueReason]:
    """Return why queued jobs wait, the most frequent reason first."""
    found: dict[str, QueueReason] = {}
    for job in jobs:
        if job.state is not JobState.QUEUED:
            continue
        waits = job.condition(PLACEABLE)
        reason, message = (job.reason, job.message) if waits is None or waits.status else (waits.reason, waits.message)
        before = found.get(reason)
        found[reason] = (
            QueueReason(reason, message, 1, job) if before is None else replace(before, jobs=before.jobs + 1)
        )
    return sorted(found.values(), key=lambda each: -each.jobs)


def goodput_days(windows: Sequence[tuple[float, float]], uses: Sequence[Sequence[WindowUse]]) -> list[GoodputDay]:
    """Return the goodput of each window: that of its jobs, weighted by their device-seconds in the window."""
    days = list[GoodputDay]()
    for at, (start_s, end_s) in enumerate(windows):
        measured_s = sum(use[at].measured_s for use in uses)
        productive_s = sum(use[at].productive_s for use in uses)
        device_hours = sum(use[at].device_seconds for use in uses) / 3600
        days.append(GoodputDay(start_s, end_s, productive_s / measured_s if measured_s > 0 else None, device_hours))
    return days
