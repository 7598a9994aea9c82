"""Removal of old history: idempotency keys, audit records, deliveries of hooks, and what remains of ended jobs."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from regroup.service.domain.errors import RegroupError, UnavailableError
from regroup.service.policy.hooks.retries import MAX_AGE_S
from regroup.service.settings import Settings
from regroup.service.store.access.audit import BATCH_RECORDS
from regroup.service.store.hooks.deliveries import BATCH_ROWS as DELIVERY_BATCH
from regroup.service.store.notices.notice_store import BATCH_ROWS as NOTICE_BATCH
from regroup.service.store.notices.notice_store import KEPT_S as NOTICES_KEPT_S
from regroup.service.store.retention import BATCH_ROWS
from regroup.service.store.rows.records import Ledger
from regroup.service.store.store import Store

_INTERVAL_S = 60.0
_BATCH_JOBS = 20
_PAUSE_S = 0.1
"""Pause between two batches: other writers use the database, too."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RetentionPolicy:
    """Time for which history is kept, mostly after the end of its job, in seconds; 0 keeps it."""

    events_s: float
    steps_s: float
    jobs_s: float
    idempotency_s: float
    audit_s: float = 0.0
    """Age at which audit records are removed."""
    hooks_s: float = 0.0
    """Age at which finished deliveries of hooks are removed."""

    @classmethod
    def of(cls, settings: Settings) -> "RetentionPolicy":
        """Return the policy of the settings."""
        return cls(
            settings.event_retention_s, settings.step_retention_s, settings.job_retention_s,
            settings.idempotency_retention_s, settings.audit_retention_s, settings.hook_retention_s,
        )  # fmt: skip


async def run_retention(store: Store, policy: RetentionPolicy, clock: Callable[[], float] = time.time) -> None:
    """Remove what is older than its retention every minute, until cancelled. Several servers may do so at once."""
    while True:
        try:
            is_more = True
            while is_more:
                is_more = await remove_expired(store, policy, clock())
                await asyncio.sleep(_PAUSE_S)
        except UnavailableError as error:
            _log.warning("the removal of old history is delayed", error=str(error))
        await asyncio.sleep(_INTERVAL_S)


async def remove_expired(store: Store, policy: RetentionPolicy, now: float) -> bool:
    """Remove one batch of each kind; return whether there may be more."""
    kept = store.retention
    is_more = await kept.remove_idempotency_keys(now - policy.idempotency_s) == BATCH_ROWS
    is_more |= await kept.remove_node_events(now) == BATCH_ROWS
    is_more |= await store.notices.remove_before(now - NOTICES_KEPT_S) == NOTICE_BATCH
    if policy.events_s:
        found = await kept.with_old_events(now - policy.events_s, _BATCH_JOBS)
        is_more |= len(found) == _BATCH_JOBS
        for job_id in found:
            is_more |= await kept.remove_events(job_id, now)
    if policy.steps_s:
        found = await kept.with_old_steps(now - policy.steps_s, _BATCH_JOBS)
        is_more |= len(found) == _BATCH_JOBS
        for job_id in found:
            is_more |= await _remove_steps(store, job_id, now)
    if policy.jobs_s:
        is_more |= await _remove_jobs(store, now - policy.jobs_s, now)
    deliveries = store.hooks.deliveries
    is_more |= await deliveries.fail_old(now - MAX_AGE_S, now=now) == DELIVERY_BATCH
    if policy.hooks_s:
        is_more |= await deliveries.remove_before(now - policy.hooks_s) == DELIVERY_BATCH
    if policy.audit_s:
        is_more |= await store.audit.remove_before(now - policy.audit_s) == BATCH_RECORDS
    return is_more


async def _remove_jobs(store: Store, finished_before: float, now: float) -> bool:
    waiting = [*await store.queued_jobs(), *await store.queue.suspended()]
    needed = {other for job in waiting for other in job.spec.get("depends_on") or ()}
    found = await store.retention.old_jobs(finished_before, _BATCH_JOBS, needed)
    for job_id in found:
        # The many rows first, in batches: the removal of the job's row then removes few others with it.
        is_more = True
        while is_more:
            is_more = await _remove_steps(store, job_id, now) or await store.retention.remove_events(job_id, now)
            await asyncio.sleep(_PAUSE_S)
        await store.usage.fold(job_id, now=now)
        await store.retention.remove_job(job_id)
        _log.info("removed a job that ended long ago", job=job_id)
    return len(found) == _BATCH_JOBS


async def _remove_steps(store: Store, job_id: str, now: float) -> bool:
    """Remove a batch of steps; return whether there may be more."""
    try:
        ledger: Ledger | None = await store.ledger(job_id)
    except UnavailableError:
        raise
    except (RegroupError, ValueError, KeyError, TypeError) as error:  # a damaged record
        _log.warning("the ledger of a job cannot be kept", job=job_id, error=repr(error))
        ledger = None
    return await store.retention.remove_steps(job_id, ledger, now)
