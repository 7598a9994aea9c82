"""One live job as the leader tends it: take its gang, follow its supervisor, clean up after it."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from regroup.service.cluster_state.allocations import members_of, node_of, reservation_of, take_all
from regroup.service.cluster_state.drain_notices import DrainNotices
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.node_health import NodeHealth, rule_of
from regroup.service.cluster_state.quota_headroom import QuotaHeadroom
from regroup.service.controller.drain import DrainReconciler
from regroup.service.controller.layout_trials import LayoutTrialReconciler
from regroup.service.controller.low_utilization import LowUtilizationReconciler, low_use_rule
from regroup.service.controller.node_replacement import ReplacementReconciler
from regroup.service.controller.predictions import PredictionReconciler
from regroup.service.controller.preemption import room_intent
from regroup.service.controller.resize import ResizeReconciler
from regroup.service.controller.spares import SpareReconciler
from regroup.service.controller.substitution import plan_of
from regroup.service.domain.errors import IllegalTransitionError, NotFoundError, UnavailableError
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.policy.accounting import goodput
from regroup.service.ports.cluster import (
    Cluster,
    ClusterUnavailableError,
    ReservationRefusedError,
    SupervisorGoneError,
    SyncReply,
    SyncRequest,
    job_of,
    supervisor_name,
)
from regroup.service.settings import Settings
from regroup.service.store.job_writer import SUSPEND
from regroup.service.store.projects import RESIZE
from regroup.service.store.records import Allocation, Condition, JobRow, Lease
from regroup.service.store.store import Store

_RETRY_S = 0.5
_GATHER_S = 0.1
"""Between two words with a supervisor: what happens meanwhile is heard at once, for a tenth of the statements."""
_LOST_WAIT_S = 0.5
"""Between looks whether the cluster has lost a node, too, that a supervisor does not hear of."""
_UNWELL = frozenset({"SupervisorResponsive", "LookedAfter"})
"""Conditions that hold until a job's supervisor is heard again."""
_TOLD_BY = ("state", "incident", "checkpoint")  # events after which a job's goodput is worth writing down again
_ACCOUNT_EVERY_S = 30.0
"""A run in which nothing happens but steps is accounted for too."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Leading:
    """What a leader acts with."""

    lease: Lease
    store: Store
    cluster: Cluster
    settings: Settings
    clock: Callable[[], float]
    """Unix seconds, for what is stored."""
    notices: DrainNotices
    """Which nodes are about to leave."""
    allowance: QuotaHeadroom
    """How much more jobs may hold."""

    @property
    def health(self) -> NodeHealth:
        """Which nodes may be used, and what befalls them."""
        return NodeHealth(self.lease, self.store, self.cluster, rule_of(self.settings))

    async def move(self, job: JobRow, target: JobState, reason: Reason, message: str = "", **options: Any) -> JobRow:
        """Write a state change, if the job still is where it was seen."""
        transition = check_transition(job.id, job.state, target, reason, message)
        return await self.store.apply(self.lease, transition, now=self.clock(), **options)


async def tend(leading: Leading, job_id: str) -> None:
    """Carry a job on from wherever it stands until it holds nothing.

    Raises:
        PreconditionError: another leads now.
    """
    if (await leading.store.job(job_id)).state is JobState.PLACING:
        await _form_gang(leading, job_id)
    await _follow(leading, job_id)
    await clean(leading, job_id)


async def clean(leading: Leading, job_id: str) -> None:
    """End and give back whatever of the job is left in the cluster. Waits for a cluster that does not answer."""
    cluster = leading.cluster
    while True:
        try:
            await cluster.stop_supervisor(supervisor_name(job_id))
            for name in await cluster.actors():
                if job_of(name) == job_id:
                    await cluster.kill_actor(name)
            if (await leading.store.job(job_id)).state.is_terminal:
                await cluster.forget_job(job_id)
            # Last, so that whoever finds reservations of a dead job knows that this was not finished.
            for name in await cluster.reservations():
                if job_of(name) == job_id:
                    await cluster.release_reservation(name)
            return
        except UnavailableError as error:
            _log.warning("cleaning up is delayed", job=job_id, error=str(error))
            await asyncio.sleep(_RETRY_S)


# ---------------------------------------------------------------- the gang


async def _form_gang(leading: Leading, job_id: str) -> None:
    """All reservations, then the supervisor; or nothing, and back into the queue."""
    rows = await leading.store.live_allocations(job_id)
    try:
        async with asyncio.timeout(leading.settings.gang_timeout_s):
            job = await leading.store.job(job_id)
            # Agents hold no devices: they come up while reservations are taken, and go with them if one is refused.
            _, devices = await asyncio.gather(
                leading.cluster.start_agents(_payload(leading.settings, job, rows, {})),
                take_all(leading.cluster, [reservation_of(row) for row in rows if row.kind == "reservation"]),
            )
            job = await leading.store.job(job_id)
            if job.intents.get("cancel"):
                await clean(leading, job_id)
                await leading.move(job, JobState.CANCELLED, Reason.CANCELLED_BY_USER, "cancelled before it started")
                return
            if SUSPEND in job.intents:
                await clean(leading, job_id)
                await leading.move(job, JobState.QUEUED, Reason.REQUEUED, "suspended before it started")
                return
            await _start_supervisor(leading, job, rows, devices)
    except (ReservationRefusedError, ClusterUnavailableError, TimeoutError) as error:
        why = str(error) or f"not all devices were there within {leading.settings.gang_timeout_s:.0f} s"
        await clean(leading, job_id)
        await leading.move(await leading.store.job(job_id), JobState.QUEUED, Reason.REQUEUED, why)
        return
    await leading.move(await leading.store.job(job_id), JobState.STARTING, Reason.RESERVED)


async def _start_supervisor(
    leading: Leading, job: JobRow, rows: Sequence[Allocation], devices: Mapping[str, Sequence[int]]
) -> None:
    """With what the database knows of the job's generations: a cluster that was started anew knows none."""
    known = [(generation.number, generation.start_step) for generation in await leading.store.generations(job.id)]
    payload = {**_payload(leading.settings, job, rows, devices), "generations": known}
    await leading.cluster.start_supervisor(supervisor_name(job.id), payload)


def _payload(
    settings: Settings, job: JobRow, rows: Iterable[Allocation], devices: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """What the supervisor is born with."""
    rows = list(rows)
    plan = next(row.data for row in rows if row.kind == "supervisor")
    first, _, last = (settings.port_range or "").partition("-")
    return {
        "job_id": job.id,
        "spec": job.spec,
        "storage_uri": job.storage_uri,
        "datasets_uri": job.storage_uri.removesuffix(f"/jobs/{job.id}") + "/datasets",
        "nodes": _nodes_at_birth(plan, rows, devices),
        "blob_uri": settings.blob_uri,
        "layout": (plan.get("resize") or {}).get("layout_before") or plan["layout"],
        "attempt": plan["attempt"],
        "allow_faults": settings.allow_faults,
        "resume": {"uri": job.resume_uri, "step": _step_in(job.resume_uri)} if job.resume_uri else None,
        "ifname": settings.ifname,
        "preflight": settings.preflight,
        "port_range": [int(first), int(last)] if first else None,
    }  # fmt: skip


def _nodes_at_birth(
    plan: Mapping[str, Any], rows: Sequence[Allocation], devices: Mapping[str, Sequence[int]]
) -> Sequence[Mapping[str, Any]]:
    """Where a job's ranks are: nodes that it moves to are told to the supervisor when it lives."""
    moving: Mapping[str, Any] = plan.get("resize") or plan.get("drain") or {}
    if nodes := moving["before"] if moving else plan.get("nodes"):
        return nodes
    come = moving.get("come", ())
    members = members_of(row for row in rows if row.is_seat and row.node_id not in come)
    return [node_of(member, devices) for member in members]


def _step_in(checkpoint_uri: str) -> int:
    """Committed steps in a checkpoint, from its directory `step-S.gen-G`."""
    folder = checkpoint_uri.rstrip("/").rpartition("/")[2]
    return int(folder.removeprefix("step-").partition(".")[0])


# ---------------------------------------------------------------- the supervisor


async def _follow(leading: Leading, job_id: str) -> None:
    """Long-poll the supervisor and store what it says, until the job holds nothing."""
    heard_s = accounted_s = time.monotonic()
    parts = (leading.lease, leading.store, leading.cluster, leading.health)
    replacing = ReplacementReconciler(*parts, leading.settings.replacement_wait_s)
    resizing = ResizeReconciler(*parts, leading.notices, leading.allowance)
    draining = DrainReconciler(*parts, leading.notices, resizing.shrink_off)
    sparing = SpareReconciler(*parts, leading.notices, leading.allowance)
    low_use = LowUtilizationReconciler(leading.lease, leading.store, low_use_rule(leading.settings))
    account = JobAccount(await leading.store.job(job_id))
    predicting = PredictionReconciler(leading.lease, leading.store, leading.cluster)
    refining = LayoutTrialReconciler(leading.lease, leading.store)
    while (job := await leading.store.job(job_id)).state.holds_devices:
        try:
            reply = await _exchange(leading, job, replacing, draining, resizing, sparing)
            await leading.health.hear(job, reply.events, leading.clock())  # first: what is ingested is not sent again
            job = await leading.store.ingest(leading.lease, job_id, reply.boot_id, reply.events, {})
            await predicting.look(job)
            told = any(event.type in _TOLD_BY for event in reply.events)
            if told or time.monotonic() - accounted_s > _ACCOUNT_EVERY_S:
                accounted_s = time.monotonic()
                await account.catch_up(leading.store, job)
                status = {"goodput": goodput(account.seconds(leading.clock()))}
                await leading.store.ingest(leading.lease, job_id, reply.boot_id, (), status)
            is_announced = (reply.status.get("incident") or {}).get("reason") == Reason.DRAINED
            lost = reply.status.get("lost") or ()
            await replacing.look(job, lost, leading.clock(), is_announced=is_announced)
            if replacing.no_heir:
                await resizing.shrink(job, lost, replacing.no_heir, leading.clock())
            await low_use.look(job, leading.clock())
            save_s = account.checkpoint_seconds[-1] if account.checkpoint_seconds else 0.0
            await refining.look(job, leading.clock())
            await resizing.look(job, reply.status, leading.clock())
            await draining.look(job, reply.status, save_s, leading.clock())
            await sparing.look(job, reply.status, leading.clock())
            heard_s = time.monotonic()
            await _say_well(leading, job)
            if job.state.holds_devices:  # else they are to be given back at once
                await asyncio.sleep(_GATHER_S)
        except SupervisorGoneError:
            await _revive(leading, job)
            await asyncio.sleep(_RETRY_S)
        except UnavailableError as error:  # the cluster's or the database's
            silent_s = time.monotonic() - heard_s
            if silent_s > leading.settings.supervisor_silence_s:
                problem = f"silent for {silent_s:.0f} s ({error}); training may go on"
                await say_unwell(leading, job_id, Condition("SupervisorResponsive", False, "silent", problem))
            await asyncio.sleep(_RETRY_S)


async def _exchange(
    leading: Leading,
    job: JobRow,
    replacing: ReplacementReconciler,
    draining: DrainReconciler,
    resizing: ResizeReconciler,
    sparing: SpareReconciler,
) -> SyncReply:
    """One long poll. An intent that comes meanwhile is sent beside it, which makes the supervisor speak."""
    rows = await leading.store.live_allocations(job.id)
    plan = plan_of(rows, job.id)
    more = {"nodes": plan["nodes"], "layout": plan["layout"]} if "nodes" in plan else dict[str, Any]()
    more |= resizing.intents(rows, job.id) or draining.intents(rows, job.id)
    more |= sparing.intents(rows)
    if replacing.no_spare:
        more["no_spare"] = replacing.no_spare
    is_changing = replacing.is_waiting or draining.concerns(rows) or resizing.concerns(job, rows) or "drain" in plan
    wait_s = min(leading.settings.sync_wait_s, _LOST_WAIT_S) if is_changing else leading.settings.sync_wait_s
    request = SyncRequest({**_intents(job, leading.clock()), **more}, job.acked_seq, job.supervisor_boot, wait_s)
    polling = asyncio.ensure_future(leading.cluster.sync(job.id, request))
    try:
        while not polling.done():
            mark = leading.store.changes.mark()
            news = await leading.store.job(job.id)
            intents = {**_intents(news, leading.clock()), **more}
            is_news = draining.concerns(rows) or resizing.concerns(news, rows)
            if intents != request.intents or (is_news and not is_changing):
                request = SyncRequest(intents, job.acked_seq, job.supervisor_boot, 0.0)
                return await leading.cluster.sync(job.id, request)
            changed = asyncio.ensure_future(leading.store.changes.wait(job.id, mark, 1.0))
            await asyncio.wait({polling, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        return polling.result()
    finally:
        polling.cancel()


def _intents(job: JobRow, now: float) -> dict[str, Any]:
    intents = {**{name: wanted for name, wanted in job.intents.items() if name != RESIZE}, **room_intent(job)}
    limit_s = job.spec.get("max_duration")
    if limit_s is not None and job.started_at is not None and now - job.started_at > limit_s:
        message = f"it ran for {limit_s:.0f} s, which is its max_duration"
        intents["end"] = {"reason": Reason.MAX_DURATION.value, "message": message}
    return intents


async def _revive(leading: Leading, job: JobRow) -> None:
    """The supervisor's actor is gone although it restarts for ever: someone killed it, or Ray was started anew."""
    rows = await leading.store.live_allocations(job.id)
    reservations = [reservation_of(row) for row in rows if row.is_seat]
    if {reservation.name for reservation in reservations} <= await leading.cluster.reservations():
        devices = await take_all(leading.cluster, reservations)
        await _start_supervisor(leading, job, rows, devices)
        return
    await clean(leading, job.id)
    job = await leading.store.job(job.id)
    message = "its supervisor and devices are gone from the cluster"
    try:
        if job.state is JobState.DRAINING and job.intents.get("cancel"):
            await leading.move(job, JobState.CANCELLED, Reason.CANCELLED_BY_USER, message)
        elif job.is_held:
            await leading.move(job, JobState.FAILED, Reason(job.reason), job.message)
        elif job.state is JobState.DRAINING:
            await leading.move(job, JobState.FAILED, Reason.PLATFORM_ERROR, message)
        else:
            await leading.move(job, JobState.QUEUED, Reason.REQUEUED, message)
    except IllegalTransitionError:
        _log.info("the job moved on meanwhile", job=job.id)


async def say_unwell(leading: Leading, job_id: str, condition: Condition) -> None:
    """Show what keeps a live job from being looked after, until the next word from its supervisor is stored."""
    with contextlib.suppress(NotFoundError):
        await _put_conditions(leading, await leading.store.job(job_id), (condition,))


async def _say_well(leading: Leading, job: JobRow) -> None:
    if any(condition.type in _UNWELL for condition in job.conditions):
        await _put_conditions(leading, job, ())


async def _put_conditions(leading: Leading, job: JobRow, told: Sequence[Condition]) -> None:
    kept = [condition for condition in job.conditions if condition.type not in _UNWELL]
    try:
        await leading.store.set_conditions(leading.lease, job.id, (*kept, *told), now=leading.clock())
    except UnavailableError as error:
        _log.warning("a condition could not be stored", job=job.id, error=str(error))
