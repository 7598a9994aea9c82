"""The loop that orders the queue and allocates nodes. One controller leads, by lease; its writes are void without it."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

import structlog

from regroup.service.cluster_state.allocations import allocate
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.controller import fences
from regroup.service.controller.autoscaler import AutoscalerRequests
from regroup.service.controller.job_reconciler import Leading, clean, say_unwell, tend
from regroup.service.controller.preemption import make_room
from regroup.service.controller.prewarm import Prewarmer
from regroup.service.controller.scheduling import PLACEABLE, Scheduler
from regroup.service.domain.errors import IllegalTransitionError, NotFoundError, PreconditionError, UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.scheduling.autoscaler_request import NodeRequest
from regroup.service.policy.scheduling.decide import Admission, Wait
from regroup.service.policy.scheduling.preemption import Shrink, Suspend
from regroup.service.ports.cluster import Cluster, ClusterUnavailableError, job_of
from regroup.service.settings import Settings
from regroup.service.store.records import Condition, JobRow, Lease
from regroup.service.store.store import Store

_LOOK_S = 1.0
_PAUSE_S = 0.1  # between looks that changes provoke: steps of running jobs are changes too
_RETRY_S = 0.5
_WARM_EVERY_S = 1.0  # it asks the cluster for its nodes
_NOTICE_EVERY_S = 1.0  # it asks the cluster for its nodes
_LIFT_EVERY_S = 1.0
_log = structlog.get_logger(__name__)


class Controller:
    """Leads when it can; survives a lost cluster or database and says so in `check`."""

    def __init__(
        self, store: Store, cluster: Cluster, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._tended: dict[str, asyncio.Task[None]] = {}
        self._lease: Lease | None = None
        self._trouble = "it has not looked yet"
        self._looked_s = -float("inf")
        self._reaped_s = -float("inf")
        self._ordering = Scheduler()
        self._asking = AutoscalerRequests(cluster)
        self._warmth = Prewarmer(cluster, settings, time.monotonic)
        self._warming: asyncio.Task[None] | None = None
        self._warmed_s = -float("inf")
        self._notices = DrainNotices(store, cluster, clock)
        self._noticing: asyncio.Task[None] | None = None
        self._noticed_s = -float("inf")
        self._lifting: asyncio.Task[None] | None = None
        self._lifted_s = -float("inf")

    async def check(self) -> str:
        """For `/readyz`: whether this control plane leads, or is ready to.

        Raises:
            UnavailableError: the loop is stuck on a part that does not answer.
        """
        if self._trouble:
            raise UnavailableError(f"the controller cannot work: {self._trouble}")
        return "leads" if self._lease else "another leads"

    async def run(self) -> None:
        """Lead whenever possible, until cancelled; then let another lead at once. Jobs are not touched by that."""
        try:
            while True:
                try:
                    self._lease = await self._store.acquire_lease(self._holder, self._settings.lease_s)
                    if self._lease is not None:
                        await self._lead(self._lease)
                    self._trouble = ""
                    await asyncio.sleep(self._settings.lease_s / 5)
                except UnavailableError as error:
                    self._trouble = str(error)
                    await asyncio.sleep(_RETRY_S)
        finally:
            if self._lease is not None:
                with contextlib.suppress(UnavailableError):  # it expires
                    await self._store.release_lease(self._lease)

    async def _lead(self, lease: Lease) -> None:
        """Until the lease is lost."""
        allowance = QuotaHeadroom(self._store)
        leading = Leading(lease, self._store, self._cluster, self._settings, self._clock, self._notices, allowance)
        _log.info("leading", holder=self._holder)
        self._reaped_s = -float("inf")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_lease(lease))
                await self._look_for_ever(leading, tasks)
        except* PreconditionError as lost:
            _log.warning("another leads now", error=str(lost.exceptions[0]))
        finally:
            self._tended.clear()
            self._lease = None if self._lease is not lease else self._lease

    async def _keep_lease(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            try:
                await self._store.renew_lease(lease, self._settings.lease_s)
            except UnavailableError as error:
                self._trouble = str(error)

    async def _look_for_ever(self, leading: Leading, tasks: asyncio.TaskGroup) -> None:
        while True:
            mark = self._store.changes.mark()
            try:
                await self._look(leading, tasks)
                self._trouble = ""
            except UnavailableError as error:
                self._trouble = str(error)
            await asyncio.sleep(_PAUSE_S)
            await self._store.changes.wait_any(mark, _LOOK_S)

    # ------------------------------------------------------------ one look

    async def _look(self, leading: Leading, tasks: asyncio.TaskGroup) -> None:
        for job in await self._store.live_jobs():
            self._tend(leading, tasks, job.id)
        self._look_for_notices(tasks)
        self._lift_fences(leading, tasks)
        queue = [job for job in await self._store.queued_jobs() if job.id not in self._tended]
        queue = [job for job in queue if not await self._expire(leading, job)]
        try:
            if queue:
                await self._place(leading, tasks, queue)
            if self._settings.autoscale:
                await self._asking.ask(self._ordering.request if queue else NodeRequest())
            if time.monotonic() - self._reaped_s > self._settings.reap_interval_s:
                await self._reap(leading)
                self._reaped_s = time.monotonic()
            self._keep_warm(leading, tasks, await self._store.live_jobs())
        except ClusterUnavailableError as error:
            for job in queue:
                await self._say(leading, job, (Condition(PLACEABLE, False, "cluster_unavailable", str(error)),))
            raise

    def _look_for_notices(self, tasks: asyncio.TaskGroup) -> None:
        """In the background: a cluster that does not answer must not keep others from being looked after."""
        if time.monotonic() - self._noticed_s > _NOTICE_EVERY_S and (self._noticing is None or self._noticing.done()):
            self._noticed_s = time.monotonic()
            self._noticing = tasks.create_task(self._notice_safely())

    async def _notice_safely(self) -> None:
        with contextlib.suppress(UnavailableError):  # what it knew holds; whoever needs the cluster says so
            await self._notices.look()

    def _lift_fences(self, leading: Leading, tasks: asyncio.TaskGroup) -> None:
        """In the background: a node that was silent may take long to answer."""
        if time.monotonic() - self._lifted_s > _LIFT_EVERY_S and (self._lifting is None or self._lifting.done()):
            self._lifted_s = time.monotonic()
            self._lifting = tasks.create_task(self._lift_safely(leading))

    async def _lift_safely(self, leading: Leading) -> None:
        with contextlib.suppress(UnavailableError):  # fences end by themselves
            await fences.lift(leading.health, self._cluster, self._settings, self._clock())

    def _keep_warm(self, leading: Leading, tasks: asyncio.TaskGroup, live: Sequence[JobRow]) -> None:
        """In the background, and never while a job starts: the processor is the job's then."""
        if any(
            job.state in (JobState.PLACING, JobState.STARTING, JobState.RECOVERING, JobState.RESIZING) for job in live
        ):
            return
        if time.monotonic() - self._warmed_s > _WARM_EVERY_S and (self._warming is None or self._warming.done()):
            self._warmed_s = time.monotonic()
            self._warming = tasks.create_task(self._warm_safely(leading))

    async def _warm_safely(self, leading: Leading) -> None:
        with contextlib.suppress(UnavailableError):  # the next look says so
            await leading.health.unfit(await self._warmth.keep(), self._clock())

    def _tend(self, leading: Leading, tasks: asyncio.TaskGroup, job_id: str) -> None:
        if job_id not in self._tended:
            self._tended[job_id] = tasks.create_task(self._tend_safely(leading, job_id))

    async def _tend_safely(self, leading: Leading, job_id: str) -> None:
        """A fault of ours in one job's care must not end the others'; it is tried again with the next look."""
        try:
            await tend(leading, job_id)
        except PreconditionError:
            raise
        except (UnavailableError, IllegalTransitionError) as error:
            _log.warning("tending a job is tried again", job=job_id, error=str(error))
            await asyncio.sleep(_RETRY_S)
        except Exception as error:
            _log.exception("tending a job failed; it is tried again", job=job_id)
            problem = f"{type(error).__name__}: {error}; the control plane tries again, please report this"
            await say_unwell(leading, job_id, Condition("LookedAfter", False, "control_plane_fault", problem))
            await asyncio.sleep(_LOOK_S)
        finally:
            self._tended.pop(job_id, None)
            self._store.changes.announce(job_id)

    async def _expire(self, leading: Leading, job: JobRow) -> bool:
        """End a job that has queued for longer than it wanted to."""
        limit_s = job.spec.get("max_queue_time")
        if limit_s is None or self._clock() - job.queued_at <= limit_s:
            return False
        unmet = next((condition.message for condition in job.conditions if not condition.status), "")
        message = f"it queued for {limit_s:.0f} s, which is its max_queue_time" + (f": {unmet}" if unmet else "")
        with contextlib.suppress(IllegalTransitionError):  # cancelled meanwhile
            await leading.move(job, JobState.FAILED, Reason.MAX_QUEUE_TIME, message)
        return True

    async def _place(self, leading: Leading, tasks: asyncio.TaskGroup, queue: Sequence[JobRow]) -> None:
        rows = {job.id: job for job in queue}
        for decision in await self._ordering.look(leading, queue):
            match decision:
                case Wait():
                    await self._say(leading, rows[decision.job_id], self._ordering.conditions(decision))
                case Admission():
                    await self._give_turn(leading, tasks, rows[decision.job_id], decision)
                case Shrink() | Suspend():
                    await make_room(self._store, leading.lease, decision, now=self._clock())

    async def _give_turn(self, leading: Leading, tasks: asyncio.TaskGroup, job: JobRow, turn: Admission) -> None:
        if job.version > 1:
            # It ran before: nothing of that life may meet the next one.
            await clean(leading, job.id)
        names = " + ".join(f"{seat.node.name} ({seat.ranks})" for seat in turn.placement.slots)
        try:
            await leading.move(job, JobState.PLACING, Reason.PLACED, f"on {names}", allocate=allocate(job, turn))
        except IllegalTransitionError:
            return  # cancelled meanwhile
        self._warmth.used(seat.node.id for seat in turn.placement.slots)
        self._tend(leading, tasks, job.id)

    async def _say(self, leading: Leading, job: JobRow, conditions: Sequence[Condition]) -> None:
        before = [(each.type, each.status, each.reason, each.message) for each in job.conditions]
        if before != [(each.type, each.status, each.reason, each.message) for each in conditions]:
            await self._store.set_conditions(leading.lease, job.id, conditions, now=self._clock())

    async def _reap(self, leading: Leading) -> None:
        """End what no live row names. The cluster is listed before the rows are read: rows come first."""
        found = await self._cluster.actors() | await self._cluster.reservations()
        rows = await self._store.live_allocations()
        holding = {row.job_id for row in rows}
        for name in sorted(found - {row.name for row in rows}):
            job_id = job_of(name)
            if job_id in self._tended and job_id not in holding:
                continue  # is being cleaned up
            try:
                await self._store.job(job_id)
            except NotFoundError:
                _log.warning("the cluster has what this database does not know; left alone", name=name)
                continue
            _log.info("reaping what a job left", name=name)
            if job_id in holding:
                await self._cluster.release_reservation(name)
                await self._cluster.kill_actor(name)
            else:
                await clean(leading, job_id)
