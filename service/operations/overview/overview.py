"""Use case of the overview: running and waiting jobs, problems that need a person, incidents of the last day."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.cluster_state.clusters import ClusterState
from regroup.service.cluster_state.shared_read import SharedRead
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
_PAST_VALID_S = 60.0
_SETTLED_S = 60.0
"""Age at which the end of a job is certainly committed."""
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
class _Past:
    """Sums over many jobs of the last days. They are kept for a minute."""

    at_s: float
    windows: Sequence[tuple[float, float]]
    use: Mapping[str, Sequence[WindowUse]]
    """Use of devices in each window, by project."""
    ended: Mapping[tuple[str, JobState], int]
    """Number of jobs by project and state that ended on the last day, but for the last minute before `at_s`."""


@dataclass(frozen=True)
class _Scope:
    """Jobs and nodes that an identity may see."""

    projects: frozenset[str] | None
    """None for all."""
    has_nodes: bool


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
        self._past: _Past | None = None
        self._measuring = asyncio.Lock()
        self._shared = SharedRead(store.queue.version, self._read, clock)

    async def get(self, sender: Sender) -> Overview:
        """Return the overview of what the sender may see."""
        identity = sender.identity
        sees_nodes = is_allowed_in_cluster(identity, ClusterPermission.NODES_READ)
        found, hooks = await asyncio.gather(
            self._shared.get(_Scope(projects_with(identity, Permission.JOBS_READ), sees_nodes)),
            # A delivery does not change the version of the state: hooks are read each time.
            self._store.overview.failing_hooks(projects_with(identity, Permission.HOOKS_READ), _MOST_ATTENTION),
        )
        attention = [*found.attention, *find_attention([], [], [], hooks)]
        return replace(found, attention=attention[:_MOST_ATTENTION], attention_total=len(attention))

    async def _read(self, scope: "_Scope") -> Overview:
        """Return the overview without hooks, and with everything that needs a person."""
        now, store, visible = self._clock(), self._store, scope.projects
        everything, rows = await asyncio.gather(store.overview.live_jobs(), store.live_allocations())
        jobs = [job for job in everything if visible is None or job.project in visible]
        past = await self._read_past(now)
        recently, (incidents, incidents_total), (nodes, clusters) = await asyncio.gather(
            store.overview.ended(past.at_s - _SETTLED_S),
            store.overview.incidents(now - DAY_S, visible, _MOST_INCIDENTS),
            self._read_cluster(scope.has_nodes),
        )
        devices = measure_device_use(nodes, everything, rows) if scope.has_nodes else None
        attention = find_attention(jobs, nodes, clusters, [])
        silent = sum(bool(each.problem) for each in clusters)
        return Overview(
            now,
            describe_health(jobs, nodes, devices, silent),
            Counter(job.state for job in jobs),
            sum_by_state([past.ended, recently], visible),
            devices,
            attention,
            len(attention),
            count_reasons(jobs)[:_MOST_REASONS],
            incidents,
            incidents_total,
            goodput_days(past.windows, [use for name, use in past.use.items() if visible is None or name in visible]),
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

    async def _read_past(self, now: float) -> _Past:
        async with self._measuring:
            if self._past is None or not 0 <= now - self._past.at_s < _PAST_VALID_S:
                windows = [(now - (day + 1) * DAY_S, now - day * DAY_S) for day in reversed(range(_DAYS))]
                use, ended = await asyncio.gather(
                    self._store.overview.use(windows), self._store.overview.ended(now - DAY_S, now - _SETTLED_S)
                )
                self._past = _Past(now, windows, use, ended)
            return self._past


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


def sum_by_state(
    parts: Iterable[Mapping[tuple[str, JobState], int]], visible: frozenset[str] | None
) -> dict[JobState, int]:
    """Return the number of jobs of the visible projects, by state."""
    found = Counter[JobState]()
    for part in parts:
        for (project, state), count in part.items():
            if visible is None or project in visible:
                found[state] += count
    return dict(found)


def goodput_days(windows: Sequence[tuple[float, float]], uses: Sequence[Sequence[WindowUse]]) -> list[GoodputDay]:
    """Return the goodput of each window: that of its jobs, weighted by their device-seconds in the window."""
    days = list[GoodputDay]()
    for at, (start_s, end_s) in enumerate(windows):
        measured_s = sum(use[at].measured_s for use in uses)
        productive_s = sum(use[at].productive_s for use in uses)
        device_hours = sum(use[at].device_seconds for use in uses) / 3600
        days.append(GoodputDay(start_s, end_s, productive_s / measured_s if measured_s > 0 else None, device_hours))
    return days
