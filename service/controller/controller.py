"""The loop that orders the queue and allocates nodes. One controller leads, by lease."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import structlog

from regroup.service.cluster_state.account_reads import AccountReader
from regroup.service.cluster_state.allocations import allocate
from regroup.service.cluster_state.budgets import BudgetReader
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.free_capacity import FreeCapacity
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.cluster_state.secrets import SecretReader
from regroup.service.controller.budgets import BudgetResumption, within_budgets
from regroup.service.controller.fences import remove_fences
from regroup.service.controller.job_faults import JobFaults
from regroup.service.controller.job_reconciler import JobFacts, release_job
from regroup.service.controller.job_tasks import JobTasks
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.preemption import request_capacity
from regroup.service.controller.prewarm import Prewarmer
from regroup.service.controller.refused_placements import RefusedPlacements
from regroup.service.controller.scheduling import AutoscalerRequests, Scheduler
from regroup.service.controller.secrets import with_readable_secrets
from regroup.service.domain.credentials.keyring import Keys, no_keys
from regroup.service.domain.errors import IllegalTransitionError, NotFoundError, PreconditionError, UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.scheduling.autoscaler_request import NodeRequest
from regroup.service.policy.scheduling.decide import Admission, DecisionFault, SchedulingDecision, Wait
from regroup.service.policy.scheduling.preemption import Requeue, Shrink
from regroup.service.ports.cluster import Cluster, ClusterUnavailableError, job_id_of
from regroup.service.settings import Settings
from regroup.service.spec.prices import read_prices
from regroup.service.store.live_jobs import RowVersion
from regroup.service.store.rows.records import PLACEABLE, Condition, JobRow, Lease
from regroup.service.store.store import Store
from regroup.service.tasks.background_task import BackgroundTask
from regroup.service.tasks.pass_record import STALE_AFTER_S, PassRecord
from regroup.service.tasks.supervised_task import describe_error, restart_delay_s

_PASS_EVERY_S = 1.0
_PASS_PAUSE_S = 0.1  # between passes that changes cause: the steps of running jobs are changes, too
_RETRY_S = 0.5
_PASS_SHARE = 0.1
"""Most of the time that passes take which only changes cause."""
_STARTING = frozenset({JobState.PLACING, JobState.STARTING, JobState.RECOVERING, JobState.RESIZING})
_log = structlog.get_logger(__name__)


class Controller:
    """Leads when it can. It survives a lost cluster or database, and reports them in `check`."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        keys: Keys = no_keys,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._keys = keys
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._lease: Lease | None = None
        self._problem = "the first scheduling pass has not finished"
        self.passes = PassRecord(clock)
        """Completed and failed passes of this server."""
        self._jobs = JobTasks()
        self._scheduler = Scheduler()
        self._autoscaler = AutoscalerRequests(cluster)
        self._prewarmer = Prewarmer(cluster, settings, time.monotonic)
        self._drain_notices = DrainNotices(store, cluster, clock)
        self._resumption = BudgetResumption()
        self._reaped_s = -float("inf")
        self._refreshing = BackgroundTask("drain notices")
        self._fencing, self._prewarming = BackgroundTask("fences"), BackgroundTask("prewarming")

    @property
    def lease(self) -> Lease | None:
        """Lease of this server; None if it does not lead. It may have been lost: each write checks it."""
        return self._lease

    async def check(self) -> str:
        """Return the role of this control plane, for `/readyz`.

        Raises:
            UnavailableError: The loop is blocked by a component that does not answer.
        """
        if self._problem:
            raise UnavailableError(f"the controller is not ready: {self._problem}")
        return "leads" if self._lease else "another leads"

    async def check_passes(self) -> str:
        """Return the age of the last completed scheduling pass, for `/readyz`.

        Raises:
            UnavailableError: this server leads, and the last pass completed long ago.
        """
        age_s = self.passes.age_s()
        if age_s is None:
            return "another server runs them"
        if age_s > STALE_AFTER_S:
            raise UnavailableError(
                f"no scheduling pass has completed for {age_s:.0f} s: {self._problem or 'it is busy'}"
            )
        return f"{age_s:.1f} s ago"

    async def run(self) -> None:
        """Lead whenever possible, until cancelled; then release the lease at once. Jobs keep running."""
        try:
            while True:
                try:
                    self._lease = await self._store.acquire_lease(self._holder, self._settings.lease_s)
                    if self._lease is not None:
                        await self._lead(self._lease)
                    self._problem = ""
                    await asyncio.sleep(self._settings.lease_s / 5)
                except UnavailableError as error:
                    self._report_problem(str(error))
                    await asyncio.sleep(_RETRY_S)
        except Exception as error:
            self._report_problem(describe_error(error))
            raise
        finally:
            self.passes.yield_lead()
            if self._lease is not None:
                with contextlib.suppress(UnavailableError):  # the lease expires
                    await self._store.release_lease(self._lease)

    async def _lead(self, lease: Lease) -> None:
        """Lead until the lease is lost."""
        headroom, free = QuotaHeadroom(self._store), FreeCapacity(self._store)
        leader = LeaderContext(
            lease, self._store, self._cluster, self._settings, self._clock, self._drain_notices, headroom, free,
            JobFaults(self._store, lease, self._clock, self.passes), RefusedPlacements(self._clock),
            BudgetReader(self._store, read_prices(self._settings.prices)), SecretReader(self._store, self._keys),
            AccountReader(self._store),
        )  # fmt: skip
        _log.info("this controller leads", holder=self._holder)
        self.passes.lead()
        self._store.live.drop_all_allocations()
        self._reaped_s = -float("inf")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._renew_lease(lease))
                if self._store.live.has_other_writers:
                    tasks.create_task(self._find_changes_of_others())
                await self._run_passes(leader, tasks)
        except* PreconditionError as lost:
            _log.warning("another controller leads", error=str(lost.exceptions[0]))
        finally:
            self.passes.yield_lead()
            self._jobs.forget_all()
            self._lease = None if self._lease is not lease else self._lease

    async def _renew_lease(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            try:
                await self._store.renew_lease(lease, self._settings.lease_s)
            except UnavailableError as error:
                self._report_problem(str(error))

    async def _find_changes_of_others(self) -> None:
        """Announce changes of live jobs that other servers made: one query for all jobs."""
        last: Mapping[str, RowVersion] = {}
        changes = self._store.changes
        while True:
            with contextlib.suppress(UnavailableError):  # the passes report it
                found = await self._store.live.versions()
                for job_id, row in found.items():
                    before = last.get(job_id)
                    if row != before and row.revision > changes.revision(job_id):
                        is_progress = before is not None and before.version == row.version
                        changes.announce(job_id, row.revision, is_progress=is_progress)
                last = found
            await asyncio.sleep(_PASS_EVERY_S)

    async def _run_passes(self, leader: LeaderContext, tasks: asyncio.TaskGroup) -> None:
        while True:
            mark, pause_s = self._store.changes.mark(), _PASS_PAUSE_S
            self.passes.begin()
            try:
                await self._run_pass(leader, tasks)
                self.passes.complete()
                self._problem = ""
                pause_s = min(_PASS_EVERY_S, max(pause_s, self.passes.duration_s * (1 / _PASS_SHARE - 1)))
            except UnavailableError as error:
                self.passes.fail("unavailable", str(error))
                self._report_problem(str(error))
            except PreconditionError:
                raise
            except Exception as error:  # running jobs are still reconciled
                described = describe_error(error)
                pause_s = restart_delay_s(self.passes.fail("fault", described))
                self._report_problem(described, error)
            await asyncio.sleep(pause_s)
            await self._store.changes.wait_any(mark, _PASS_EVERY_S)

    def _report_problem(self, problem: str, error: Exception | None = None) -> None:
        """Keep the problem for `check`, and log it if it is new."""
        if problem != self._problem:
            _log.error("the controller has a problem", problem=problem, exc_info=error)
        self._problem = problem

    # ------------------------------------------------------------ one pass

    async def _run_pass(self, leader: LeaderContext, tasks: asyncio.TaskGroup) -> None:
        # 1. Every live job has a task that reconciles it.
        live = await self._store.live.states()
        leader.pace.live = len(live)
        await self._jobs.start_all(leader, tasks, live)
        # 2. Background work begins before anything that may wait for the cluster.
        self._refreshing.start(tasks, self._drain_notices.refresh)
        self._fencing.start(tasks, lambda: remove_fences(leader.health, self._cluster, self._settings, self._clock()))
        # 3. Jobs that queued for too long are ended, the others are scheduled.
        queued = await self._store.queued_jobs()
        unfinished = {*live, *(job.id for job in queued)}
        leader.faults.retain(unfinished)
        leader.refused_placements.retain(unfinished)
        queue = [job for job in queued if job.id not in self._jobs.job_ids and not job.damaged]
        queue = [job for job in queue if not await self._expire(leader, job) and not await self._delay(leader, job)]
        queue = await with_readable_secrets(leader, await within_budgets(leader, queue))
        # A step that fails does not keep the later ones from their work.
        errors = list[Exception]()
        try:
            async with _collect(errors):
                if queue:
                    await self._schedule(leader, tasks, queue)
            async with _collect(errors):
                await self._resumption.resume_jobs(leader)
            # 4. The autoscaler gets what is still missing.
            async with _collect(errors):
                if self._settings.autoscale:
                    await self._autoscaler.submit(self._scheduler.request if queue else NodeRequest())
            # 5. Kill actors and release reservations that no row names.
            async with _collect(errors):
                if time.monotonic() - self._reaped_s > self._settings.reap_interval_s:
                    await self._reap(leader)
                    await self._forget_ended(leader, unfinished)
                    self._reaped_s = time.monotonic()
            # 6. Nodes are prewarmed, but never while a job starts: the CPUs belong to the job then.
            if not _STARTING.intersection(live.values()) and self._jobs.job_ids <= live.keys():
                self._prewarming.start(tasks, lambda: self._prewarm_nodes(leader))
        except ClusterUnavailableError as error:
            for job in queue:
                async with leader.faults.isolate(job.id, "to store why it waits"):
                    waits = Condition(PLACEABLE, False, "cluster_unavailable", str(error))
                    await leader.set_conditions(job, (waits,))
            raise
        if errors:
            raise errors[0]

    async def _prewarm_nodes(self, leader: LeaderContext) -> None:
        await leader.health.record_unfit(await self._prewarmer.prewarm_nodes(self._drain_notices.nodes), self._clock())

    async def _expire(self, leader: LeaderContext, job: JobRow) -> bool:
        """End a job that exceeds its `max_queue_time`; return whether it does."""
        async with leader.faults.isolate(job.id, "to check its max_queue_time"):
            limit_s = job.spec.get("max_queue_time")
            if limit_s is None or self._clock() - job.queued_at <= limit_s:
                return False
            unmet = next((condition.message for condition in job.conditions if not condition.status), "")
            message = f"the job queued for {limit_s:.0f} s, its max_queue_time" + (f": {unmet}" if unmet else "")
            with contextlib.suppress(IllegalTransitionError):  # the job was cancelled
                await leader.move(job, JobState.FAILED, Reason.MAX_QUEUE_TIME, message)
            return True
        return False  # after a fault

    async def _delay(self, leader: LeaderContext, job: JobRow) -> bool:
        """Return whether the job waits because its devices were refused, and show it."""
        async with leader.faults.isolate(job.id, "to store why it waits"):
            if (waits := leader.refused_placements.condition(job.id)) is None:
                return False
            await leader.set_conditions(job, (waits,))
            return True
        return False  # after a fault

    async def _schedule(self, leader: LeaderContext, tasks: asyncio.TaskGroup, queue: Sequence[JobRow]) -> None:
        rows = {job.id: job for job in queue}
        for decision in await self._scheduler.decide(leader, queue):
            async with leader.faults.isolate(decision.job_id, "to act on its scheduling decision"):
                await self._act(leader, tasks, rows, decision)

    async def _act(
        self,
        leader: LeaderContext,
        tasks: asyncio.TaskGroup,
        rows: Mapping[str, JobRow],
        decision: SchedulingDecision,
    ) -> None:
        match decision:
            case Wait():
                await leader.set_conditions(rows[decision.job_id], self._scheduler.conditions(decision))
            case Admission():
                await self._admit(leader, tasks, rows[decision.job_id], decision)
            case Shrink() | Requeue():
                await request_capacity(self._store, leader.lease, decision, now=self._clock())
            case DecisionFault():
                await leader.faults.report(decision.job_id, "to schedule it", decision.error)

    async def _admit(self, leader: LeaderContext, tasks: asyncio.TaskGroup, job: JobRow, admission: Admission) -> None:
        if job.version > 1:
            # The job ran before: nothing of that run may meet the next one.
            await release_job(leader, job.id)
        slots = admission.placement.slots
        names = " + ".join(f"{slot.node.name} ({slot.ranks})" for slot in slots)
        allocations = allocate(job, admission)
        mark = self._store.changes.mark()
        try:
            placed = await leader.move(job, JobState.PLACING, Reason.PLACED, f"on {names}", allocate=allocations)
        except IllegalTransitionError:
            return  # the job was cancelled
        self._prewarmer.mark_used(slot.node.id for slot in slots)
        self._jobs.start(leader, tasks, JobFacts(placed, mark))

    async def _reap(self, leader: LeaderContext) -> None:
        """End what no live row names. The cluster is listed first, because rows are written before objects."""
        found = await self._cluster.actors() | await self._cluster.reservations()
        names = await self._store.live.allocation_names()
        holding = set(names.values())
        for name in sorted(found - names.keys()):
            async with leader.faults.isolate(job_id_of(name), "to release what it left"):
                await self._reap_object(leader, name, holding)

    async def _forget_ended(self, leader: LeaderContext, unfinished: Collection[str]) -> None:
        """Delete the records of jobs that ended while they held nothing, such as a job that was cancelled in the queue.

        Args:
            unfinished: ids of the jobs that are queued or live. A job that became one since then is not terminal.
        """
        for job_id in sorted(await self._cluster.recorded_jobs() - {*unfinished, *self._jobs.job_ids}):
            async with leader.faults.isolate(job_id, "to delete its records"):
                with contextlib.suppress(NotFoundError):  # another database may use the same cluster
                    if (await self._store.job(job_id)).state.is_terminal:
                        await self._cluster.forget_job(job_id)

    async def _reap_object(self, leader: LeaderContext, name: str, holding: Collection[str]) -> None:
        job_id = job_id_of(name)
        if job_id in self._jobs.job_ids and job_id not in holding:
            return  # the release is in progress
        try:
            await self._store.job(job_id)
        except NotFoundError:
            _log.warning("ignoring a Ray object that this database does not know", name=name)
            return
        _log.info("reaping an object of a job", name=name)
        if job_id in holding:
            await self._cluster.release_reservation(name)
            await self._cluster.kill_actor(name)
        else:
            await release_job(leader, job_id)


@asynccontextmanager
async def _collect(errors: list[Exception]) -> AsyncGenerator[None]:
    """Append an unexpected error of the block to `errors`, so that the next block runs."""
    try:
        yield
    except (PreconditionError, UnavailableError):
        raise
    except Exception as error:
        errors.append(error)
