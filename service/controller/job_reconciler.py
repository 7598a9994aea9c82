"""One live job, as the leading controller reconciles it: form its gang, follow its supervisor, release what it held."""

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import (
    JobAllocations,
    create_reservations,
    reservation_of,
)
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.start_config import start_config
from regroup.service.controller.budgets import BudgetReconciler
from regroup.service.controller.cluster_loss import describe_cluster_loss, record_cluster_loss
from regroup.service.controller.drain import DrainReconciler
from regroup.service.controller.job_requests import JobRequestReconciler
from regroup.service.controller.layout_trials import LayoutTrialReconciler
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.low_utilization import LowUtilizationReconciler
from regroup.service.controller.node_replacement import ReplacementReconciler
from regroup.service.controller.predictions import PredictionReconciler
from regroup.service.controller.reconciler import Reconciler
from regroup.service.controller.resize import ResizeReconciler
from regroup.service.controller.secrets import SecretReconciler
from regroup.service.controller.shared_storage import SharedStorageReconciler
from regroup.service.controller.spares import SpareReconciler
from regroup.service.domain.errors import IllegalTransitionError, NotFoundError, PreconditionError, UnavailableError
from regroup.service.domain.states import JobState, Reason
from regroup.service.policy.accounting import goodput
from regroup.service.ports.cluster import (
    ClusterUnavailableError,
    ReservationRefusedError,
    SupervisorGoneError,
    supervisor_name,
)
from regroup.service.ports.start_config import stored_incidents
from regroup.service.ports.sync import Intents, SupervisorStatus, SyncReply, SyncRequest
from regroup.service.store.jobs.job_writer import SUSPEND
from regroup.service.store.rows.records import PLATFORM_FAULT, Allocation, AllocationKind, Condition, JobRow
from regroup.workers.contract.codec import plain

_RETRY_S = 0.5
_SYNC_PAUSE_S = 0.1
"""Pause between two syncs. Events of this time arrive together, which takes fewer statements."""
_CHANGE_SYNC_S = 0.5
"""Longest sync during a change: the supervisor does not detect every node that the cluster loses."""
_LEAST_GATHER = 0.75
"""Least part of the time for gathering that a sync takes, so that those of many jobs do not meet."""
_UNKNOWN = -1
"""Mark after an error: the row may have changed without an announcement."""
_SUPERVISOR_CONDITIONS = frozenset({"SupervisorResponsive", PLATFORM_FAULT})
"""Conditions that end with the next sync of the job's supervisor."""
_PROGRESS_EVENTS = frozenset({"report", "mirror"})
"""Events that may wait a moment, as steps do, until they are stored together with those of other jobs."""
_ACCOUNTED_EVENTS = ("state", "incident", "checkpoint")
"""Events after which the job's goodput is recorded."""
_MOST_INCIDENTS = 200
"""Number of the newest incidents that a supervisor gets. They restore its charges and an incident that is open."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class JobFacts:
    """Facts that a controller has read about a job before it reconciles it. Thousands of jobs are read together."""

    row: JobRow
    mark: int
    """Count of changes before the row was read."""
    predicted: int = 0
    """Generations up to this number have predictions; 0: unknown."""
    has_plan: bool = True
    """False: its spec contains the layout."""


async def reconcile_job(leader: LeaderContext, facts: JobFacts) -> None:
    """Reconcile a job from its present state until it holds nothing.

    Raises:
        PreconditionError: Another controller leads.
    """
    mark, job = await _refresh(leader, facts.mark, facts.row)
    if job.state is JobState.PLACING:
        await _form_gang(leader, job.id)
        mark, job = await _refresh(leader, mark, job)
    try:
        await _follow(leader, replace(facts, row=job, mark=mark))
    finally:
        leader.store.live.drop_allocations(job.id)
    await release_job(leader, job.id)


async def release_job(leader: LeaderContext, job_id: str) -> None:
    """End and release all that the job has in the cluster. Waits for a cluster that does not answer."""
    cluster = leader.cluster
    while True:
        try:
            await cluster.stop_supervisor(supervisor_name(job_id))
            for name in await cluster.actors(job_id):
                await cluster.kill_actor(name)
            if (await leader.store.job(job_id)).state.is_terminal:
                await cluster.forget_job(job_id)
            # Reservations go last: if a dead job has some, its release was not finished.
            for name in await cluster.reservations(job_id):
                await cluster.release_reservation(name)
            return
        except UnavailableError as error:
            _log.warning("retrying to release a job", job=job_id, error=str(error))
            await asyncio.sleep(_RETRY_S)


# ---------------------------------------------------------------- the gang


async def _form_gang(leader: LeaderContext, job_id: str) -> None:
    """Create all reservations, then the supervisor; if one fails, release all and requeue the job."""
    rows = await leader.store.live_allocations(job_id)
    try:
        async with asyncio.timeout(leader.settings.gang_timeout_s):
            job = await leader.store.job(job_id)
            reservations = [reservation_of(row) for row in rows if row.kind is AllocationKind.RESERVATION]
            # Agents hold no devices: they start while devices are reserved, and stop if a reservation is refused.
            _, devices = await asyncio.gather(
                leader.cluster.start_agents(start_config(leader.settings, job, rows, {})),
                create_reservations(leader.cluster, reservations),
            )
            job = await leader.store.job(job_id)
            if job.intents.get("cancel"):
                await release_job(leader, job_id)
                await leader.move(job, JobState.CANCELLED, Reason.CANCELLED_BY_USER, "cancelled before it started")
                return
            if SUSPEND in job.intents:
                await release_job(leader, job_id)
                await leader.move(job, JobState.QUEUED, Reason.REQUEUED, "suspended before it started")
                return
            await _start_supervisor(leader, job, rows, devices)
    except (ReservationRefusedError, ClusterUnavailableError, TimeoutError) as error:
        why = str(error) or f"the devices were not reserved within {leader.settings.gang_timeout_s:.0f} s"
        await release_job(leader, job_id)
        leader.refused_placements.record(job_id, why)
        await leader.move(await leader.store.job(job_id), JobState.QUEUED, Reason.REQUEUED, why)
        return
    leader.refused_placements.forget(job_id)
    await leader.move(await leader.store.job(job_id), JobState.STARTING, Reason.RESERVED)


async def _start_supervisor(
    leader: LeaderContext, job: JobRow, rows: Sequence[Allocation], devices: Mapping[str, Sequence[int]]
) -> None:
    """Start the supervisor with the generations and incidents of the database: a new cluster has no records of them."""
    generations = {generation.number: generation.start_step for generation in await leader.store.generations(job.id)}
    incidents = [incident.data for incident in (await leader.store.incidents(job.id))[-_MOST_INCIDENTS:]]
    config = start_config(leader.settings, job, rows, devices)
    config = replace(config, generations=generations, incidents=stored_incidents(incidents))
    await leader.cluster.start_supervisor(supervisor_name(job.id), config)


# ---------------------------------------------------------------- the supervisor


def _reconcilers(leader: LeaderContext, account: JobAccount, facts: JobFacts) -> Sequence[Reconciler]:
    """Return the reconcilers of a job, in the order in which they run.

    The order matters in two ways. In a sync, the intent of a later one overrides that of an earlier one: a request to
    requeue overrides a resize, and a drain overrides both. When they reconcile, a change by one keeps the later ones
    from beginning another: lost nodes first, then requests, then drains, and spares only while nothing else changes.
    """
    resize = ResizeReconciler(leader)
    return [
        SecretReconciler(leader),
        PredictionReconciler(leader, facts.predicted),  # before the first steps of a generation are recorded
        ReplacementReconciler(leader, resize.shrink),
        LowUtilizationReconciler(leader),
        BudgetReconciler(leader, account),
        LayoutTrialReconciler(leader, has_plan=facts.has_plan),  # requests a resize, which the next one begins
        resize,
        SharedStorageReconciler(leader),
        JobRequestReconciler(leader),
        DrainReconciler(leader, account, resize.shrink_for_drain),
        SpareReconciler(leader),
    ]


async def _follow(leader: LeaderContext, facts: JobFacts) -> None:
    """Sync with the supervisor, store its events and reconcile the job, until it holds nothing."""
    job, mark = facts.row, facts.mark
    store, job_id = leader.store, job.id
    account, accounted = JobAccount(job), dict[str, Any]()
    reconcilers = _reconcilers(leader, account, facts)
    # A new leader follows all jobs at the same moment: their first syncs are spread over time.
    share, synced_s = random.random(), time.monotonic()
    accounted_s = synced_s - random.random() * leader.pace.account_s
    while job.state.has_allocations:
        try:
            intent_errors = dict[str, Exception]()
            reply = await _sync(leader, job, mark, share, reconcilers, intent_errors)
            mark, share = store.changes.mark(), random.uniform(_LEAST_GATHER, 1.0)
            # Faults of nodes first: the supervisor does not repeat events that were ingested.
            await leader.health.record_events(job, reply.events, leader.clock())
            reported = {"ranks": reply.status.ranks, "save": plain(reply.status.save)}
            status = {"reported_at": leader.clock(), **reported, **accounted}
            is_progress = job.state is JobState.RUNNING and all(each.type in _PROGRESS_EVENTS for each in reply.events)
            delay_s = leader.pace.delay_s if is_progress else 0.0
            job = await store.ingest(leader.lease, job_id, reply.boot_id, reply.events, status, delay_s, reply.steps)
            accounted, is_due = {}, any(event.type in _ACCOUNTED_EVENTS for event in reply.events)
            if is_due or time.monotonic() - accounted_s > leader.pace.account_s:
                accounted_s = time.monotonic()
                await leader.accounts.catch_up(account, job, leader.pace.delay_s)
                accounted = {"goodput": goodput(account.seconds(leader.clock()))}
            if is_due:  # else with the next events
                delay_s = leader.pace.delay_s
                job = await store.ingest(leader.lease, job_id, reply.boot_id, (), accounted, delay_s)
                accounted = {}
            failed = await _reconcile_aspects(leader, job, reply.status, reconcilers)
            synced_s = time.monotonic()
            for name, error in intent_errors.items():
                await leader.faults.report(job.id, f"in {name}", error)
            if not failed and not intent_errors:
                await _clear_problem(leader, job)
            if job.state.has_allocations:  # else its nodes are released at once
                await asyncio.sleep(_SYNC_PAUSE_S)
        except SupervisorGoneError:
            mark = _UNKNOWN
            await _restart_supervisor(leader, job)
            await asyncio.sleep(_RETRY_S)
        except UnavailableError as error:  # of the cluster or the database
            mark = _UNKNOWN
            silent_s = time.monotonic() - synced_s
            if silent_s > leader.settings.supervisor_silence_s:
                problem = f"no answer for {silent_s:.0f} s ({error}); training may continue"
                await report_problem(leader, job_id, Condition("SupervisorResponsive", False, "silent", problem))
            await asyncio.sleep(_RETRY_S)
        mark, job = await _refresh(leader, mark, job)


async def _refresh(leader: LeaderContext, mark: int, job: JobRow) -> tuple[int, JobRow]:
    """Return the row of a job, read again if others have changed it since `mark`, and the new mark."""
    now = leader.store.changes.mark()
    if leader.store.changes.has_changed(job.id, mark, job.revision):
        job = await leader.store.job(job.id)
    return now, job


async def _reconcile_aspects(
    leader: LeaderContext, job: JobRow, status: SupervisorStatus, reconcilers: Sequence[Reconciler]
) -> bool:
    """Reconcile each aspect of a job; return whether one failed. A fault of one aspect does not stop the others."""
    has_failed = False
    for reconciler in reconcilers:
        try:
            await reconciler.reconcile(job, status, leader.clock())
        except (PreconditionError, UnavailableError, SupervisorGoneError, IllegalTransitionError):
            raise
        except Exception as error:
            has_failed = True
            await leader.faults.report(job.id, f"in {type(reconciler).__name__}", error)
    return has_failed


async def _sync(
    leader: LeaderContext,
    job: JobRow,
    mark: int,
    share: float,
    reconcilers: Sequence[Reconciler],
    errors: dict[str, Exception],
) -> SyncReply:
    """Poll the supervisor. Intents that change during the poll are sent at once, which also ends the poll.

    Args:
        mark: count of changes before the row was read.
        share: part of the time for which the supervisor may gather steps.
        errors: receives the errors of reconcilers whose intents are unknown, by name. The others are sent: a job must
            always obey a cancellation.
    """
    allocations = JobAllocations(await leader.store.live.allocations(job.id))
    is_changing = _is_changing(reconcilers, job, allocations)
    gather_s, wait_s = leader.pace.gather_s * share, leader.settings.sync_wait_s
    if is_changing:
        gather_s, wait_s = 0.0, min(wait_s, _CHANGE_SYNC_S)
    wait_s = max(wait_s, gather_s)
    intents = _merge_intents(reconcilers, job, allocations, errors)
    polling = asyncio.ensure_future(
        leader.cluster.sync(job.id, SyncRequest(intents, job.acked_seq, job.supervisor_boot_id, wait_s, gather_s))
    )
    latest = job
    try:
        while True:
            changed = asyncio.ensure_future(leader.store.changes.wait(job.id, mark, leader.pace.recheck_s))
            await asyncio.wait({polling, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if polling.done():
                return polling.result()
            mark, latest = await _refresh(leader, mark, latest)
            now_intended = _merge_intents(reconcilers, latest, allocations, errors)
            has_begun = not is_changing and _is_changing(reconcilers, latest, allocations)
            if now_intended != intents or has_begun:
                request = SyncRequest(now_intended, job.acked_seq, job.supervisor_boot_id, 0.0)
                return await leader.cluster.sync(job.id, request)
    finally:
        polling.cancel()


def _is_changing(reconcilers: Sequence[Reconciler], job: JobRow, allocations: JobAllocations) -> bool:
    """Return whether a change of the job is requested or in progress."""
    for reconciler in reconcilers:
        with contextlib.suppress(Exception):  # `_merge_intents` meets the same fault, and reports it
            if reconciler.concerns(job, allocations):
                return True
    return False


def _merge_intents(
    reconcilers: Sequence[Reconciler], job: JobRow, allocations: JobAllocations, errors: dict[str, Exception]
) -> Intents:
    """Return the assigned nodes and the intents of all reconcilers; later ones override earlier ones."""
    assignment = allocations.assignment if allocations else None
    nodes = assignment.nodes if assignment else ()
    merged = Intents(nodes=nodes, layout=assignment.layout if assignment and nodes else None)
    for reconciler in reconcilers:
        try:
            merged = merged.merge(reconciler.intents(job, allocations))
        except Exception as error:
            errors[type(reconciler).__name__] = error
    return merged


async def _restart_supervisor(leader: LeaderContext, job: JobRow) -> None:
    """Start a supervisor in place of one that was killed, or requeue the job if its reservations are gone, too.

    Ray restarts the actor after every failure, so it is missing only if a user killed it, or Ray itself restarted.
    """
    rows = await leader.store.live_allocations(job.id)
    seen_s, reservations = leader.clock(), [reservation_of(row) for row in rows if row.is_for_ranks]
    existing = await leader.cluster.reservations(job.id)
    lost = {reservation.node_id for reservation in reservations if reservation.name not in existing}
    if not lost:
        devices = await create_reservations(leader.cluster, reservations)
        await _start_supervisor(leader, job, rows, devices)
        return
    await release_job(leader, job.id)
    job = await leader.store.job(job.id)
    newest, _ = await leader.store.newest_generation_and_incidents(job.id)
    message = describe_cluster_loss(newest, lost)
    await record_cluster_loss(leader, job, message, seen_s=seen_s, lost=lost)
    try:
        if job.state is JobState.DRAINING and job.intents.get("cancel"):
            await leader.move(job, JobState.CANCELLED, Reason.CANCELLED_BY_USER, message)
        elif job.is_held:
            await leader.move(job, JobState.FAILED, Reason(job.reason), job.message)
        elif job.state is JobState.DRAINING:
            await leader.move(job, JobState.FAILED, Reason.PLATFORM_ERROR, message)
        else:
            await leader.move(job, JobState.QUEUED, Reason.REQUEUED, message)
    except IllegalTransitionError:
        _log.info("the job changed its state while its reservations were released", job=job.id)


async def report_problem(leader: LeaderContext, job_id: str, condition: Condition) -> None:
    """Say in a condition why a job is not reconciled. The next sync with its supervisor removes it."""
    with contextlib.suppress(NotFoundError):
        await _set_problem(leader, await leader.store.job(job_id), (condition,))


async def _clear_problem(leader: LeaderContext, job: JobRow) -> None:
    if not job.damaged and any(condition.type in _SUPERVISOR_CONDITIONS for condition in job.conditions):
        await _set_problem(leader, job, ())


async def _set_problem(leader: LeaderContext, job: JobRow, problem: Sequence[Condition]) -> None:
    others = [condition for condition in job.conditions if condition.type not in _SUPERVISOR_CONDITIONS]
    try:
        await leader.store.set_conditions(leader.lease, job.id, (*others, *problem), now=leader.clock())
    except UnavailableError as error:
        _log.warning("could not store a condition", job=job.id, error=str(error))
