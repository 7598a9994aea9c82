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
from regroup.service.store.overview import FailingHook, LiveJob, RecentIncident, WindowUse
from regroup.service.store.rows.records import PLACEABLE
from regroup.service.store.store import Store

DAY_S = 86_400.0
_DAYS = 7
_PAST_VALID_S = 60.0
_PAST_RENEWED_S = 30.0
"""Age at which the sums of the past are renewed, while requests still get the present ones."""
_SETTLED_S = 60.0
"""Age at which the end of a job is certainly committed."""
_MOST_INCIDENTS = 50
_MOST_ATTENTION = 50
_MOST_REASONS = 20
_MOST_SHOWN = 64


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
class Scope:
    """The jobs, hooks and nodes that an identity may see."""

    projects: frozenset[str] | None
    """Projects with jobs; None for all."""
    hook_projects: frozenset[str] | None
    """Projects with hooks; None for all."""
    has_nodes: bool


@dataclass(frozen=True)
class _Shown:
    """The overview with hooks, and what it was made of."""

    of: Overview
    hooks: Sequence[FailingHook]
    overview: Overview


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
        self._renewal: asyncio.Task[_Past] | None = None
        self._shared = SharedRead(store.queue.version, self._read, clock)
        self._shown: dict[Scope, _Shown] = {}

    async def get(self, sender: Sender) -> Overview:
        """Return the overview of what the sender may see.

        It is the same object as before while nothing has changed, for a second.
        """
        scope = scope_of(sender)
        found, hooks = await asyncio.gather(
            self._shared.get(replace(scope, hook_projects=frozenset())),
            # A delivery does not change the version of the state: hooks are read each time.
            self._store.overview.failing_hooks(scope.hook_projects, _MOST_ATTENTION),
        )
        shown = self._shown.get(scope)
        if shown is None or shown.of is not found or shown.hooks != hooks:
            if len(self._shown) >= _MOST_SHOWN:
                self._shown.clear()
            shown = self._shown[scope] = _Shown(found, hooks, _with_hooks(found, hooks))
        return shown.overview

    async def _read(self, scope: Scope) -> Overview:
        """Return the overview without hooks, and with everything that needs a person."""
        now, store, visible = self._clock(), self._store, scope.projects
        past = await self._read_past(now)
        everything, rows, recently, (incidents, incidents_total), (nodes, clusters) = await asyncio.gather(
            store.overview.live_jobs(),
            store.live_allocations(),
            store.overview.ended(past.at_s - _SETTLED_S),
            store.overview.incidents(now - DAY_S, visible, _MOST_INCIDENTS),
            self._read_cluster(scope.has_nodes),
        )
        jobs = everything if visible is None else [job for job in everything if job.project in visible]
        devices = measure_device_use(nodes, everything, rows) if scope.has_nodes else None
        attention = find_attention(jobs, nodes, clusters, [])
        silent = sum(bool(each.problem) for each in clusters)
        states = Counter(job.state for job in jobs)
        return Overview(
            now,
            describe_health(states, nodes, devices, silent),
            states,
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
        past = self._past
        if past is None or not 0 <= now - past.at_s < _PAST_VALID_S:
            return await self._sum_past(now)
        if now - past.at_s >= _PAST_RENEWED_S and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(self._sum_past(now))
            # If it fails, the requests after the end of its validity do the same, and get the error.
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        return past

    async def _sum_past(self, now: float) -> _Past:
        async with self._measuring:
            if self._past is None or not 0 <= now - self._past.at_s < _PAST_RENEWED_S:
                windows = [(now - (day + 1) * DAY_S, now - day * DAY_S) for day in reversed(range(_DAYS))]
                use, ended = await asyncio.gather(
                    self._store.overview.use(windows), self._store.overview.ended(now - DAY_S, now - _SETTLED_S)
                )
                self._past = _Past(now, windows, use, ended)
            return self._past


def scope_of(sender: Sender) -> Scope:
    """Return what the sender may see in an overview."""
    identity = sender.identity
    return Scope(
        projects_with(identity, Permission.JOBS_READ),
        projects_with(identity, Permission.HOOKS_READ),
        is_allowed_in_cluster(identity, ClusterPermission.NODES_READ),
    )


def _with_hooks(found: Overview, hooks: Sequence[FailingHook]) -> Overview:
    attention = [*found.attention, *find_attention([], [], [], hooks)]
    return replace(found, attention=attention[:_MOST_ATTENTION], attention_total=len(attention))


def count_reasons(jobs: Iterable[LiveJob]) -> list[QueueReason]:
    """Return why queued jobs wait, the most frequent reason first."""
    counts, first = Counter[str](), dict[str, tuple[str, LiveJob]]()
    for job in jobs:
        if job.state is not JobState.QUEUED:
            continue
        waits = job.condition(PLACEABLE) if job.conditions else None
        reason, message = (job.reason, job.message) if waits is None or waits.status else (waits.reason, waits.message)
        counts[reason] += 1
        first.setdefault(reason, (message, job))
    return [
        QueueReason(reason, first[reason][0], count, first[reason][1])
        for reason, count in sorted(counts.items(), key=lambda each: -each[1])
    ]


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
