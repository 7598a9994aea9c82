"""The share of one job in the counters and histograms of the server.

When a job has ended, its numbers are added to stored sums, once. A scrape adds those of all other jobs. Its cost thus
does not grow with the history, and the sums survive the removal of old jobs.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.states import Reason
from regroup.service.observability import metric_names as names
from regroup.service.observability.metric_names import Metric
from regroup.service.policy.accounting import device_seconds, queue_waits
from regroup.service.store.rows.sums import SampleKey, Sums
from regroup.service.store.store import Store

_COUNT_EVERY_S = 5.0
_SETTLED_AFTER_S = 60.0
"""Time after its end at which a job gets no more events."""
_BATCH = 50
SPARE = "spare"
"""Class of device-seconds of spare nodes."""
NOTES_COUNTED: Mapping[Metric, str] = {
    names.STEPS_SKIPPED: "step_skipped",
    names.LOSS_SPIKES: "loss_spike",
    names.CHECKPOINTS_FAILED: "checkpoint_failed",
    names.CLOCKS_SET: "clock_set",
    names.STALE_CALLS: "stale",
}
"""Counter → kind of the notes that it counts."""
_REASONS = frozenset(reason.value for reason in Reason)
_log = structlog.get_logger(__name__)


def totals_of(account: JobAccount, now: float) -> Sums:
    """Return what a job adds to the sums until `now`."""
    sums = defaultdict[SampleKey, float](float)
    incidents = list(account.incidents.values())
    for incident in incidents:
        sums[names.INCIDENTS.name, (_reason_of(incident),)] += 1
        if (action := str(incident.get("recovery_action"))) in ("resize", "shrink"):
            sums[names.RESIZES.name, (action,)] += 1
    for cause, lost in account.steps_lost.items():
        sums[names.STEPS_LOST.name, (cause,)] += lost
    for metric, kind in NOTES_COUNTED.items():
        sums[metric.name, ()] += account.notes[kind]
    sums[names.CHECKPOINT_WRITTEN.name, ()] += account.written_bytes
    sums[names.CHECKPOINT_WRITE_SECONDS.name, ()] += account.write_s
    for source, (fetched_bytes, seconds) in account.restored.items():
        sums[names.RESTORED_BYTES.name, (source,)] += fetched_bytes
        sums[names.RESTORE_NODE_SECONDS.name, (source,)] += seconds
    for why, count in account.snapshots_refused.items():
        sums[names.SNAPSHOTS_REFUSED.name, (why,)] += count
    _observe(sums, names.QUEUE_WAIT, (), queue_waits(account.timeline))
    _observe(sums, names.CHECKPOINT_SECONDS, (), account.checkpoint_seconds)
    _observe(sums, names.INSTALL_SECONDS, (), account.install_seconds)
    _observe_recoveries(sums, incidents)
    _add_device_seconds(sums, account, now)
    return sums


def _reason_of(incident: Mapping[str, Any]) -> str:
    """Return a label from a small set: a cause may contain ranks and nodes."""
    reason = str(incident.get("reason") or incident.get("cause"))
    return reason if reason in _REASONS else "unknown"


def _observe_recoveries(sums: dict[SampleKey, float], incidents: Iterable[Mapping[str, Any]]) -> None:
    for incident in incidents:
        if incident.get("reason") == Reason.SUSPENDED:
            continue  # users choose the duration of a suspension
        durations = incident.get("durations") or {}
        for phase, seconds in durations.items():
            if seconds is not None:
                _observe(sums, names.RECOVERY, (str(phase),), [float(seconds)])
        is_resize = incident.get("recovery_action") == "resize" and incident.get("reason") == Reason.RESIZED
        if is_resize and durations.get("total") is not None:
            _observe(sums, names.RESIZE_GAP, (), [float(durations["total"])])


def _add_device_seconds(sums: dict[SampleKey, float], account: JobAccount, now: float) -> None:
    device = str((account.job.spec.get("resources") or {}).get("device", "cpu"))
    seconds_by_class = device_seconds(account.seconds(now), account.world_size)
    for kind, seconds in seconds_by_class.items():
        sums[names.DEVICE_SECONDS.name, (kind.value, device)] += seconds
    if spare_s := account.spare_device_seconds(now):
        sums[names.DEVICE_SECONDS.name, (SPARE, device)] += spare_s


def _observe(sums: dict[SampleKey, float], metric: Metric, labels: tuple[str, ...], values: Iterable[float]) -> None:
    """Add observations to a histogram: a count for each bucket, and their sum."""
    for value in values:
        for bound in (*metric.buckets, math.inf):
            if value <= bound:
                sums[metric.name, (*labels, bound_label(bound))] += 1
        sums[sum_name(metric), labels] += value


def sum_name(metric: Metric) -> str:
    """Return the name under which the sum of a histogram's observations is stored."""
    return f"{metric.name}_sum"


def bound_label(bound: float) -> str:
    """Return the label of a bucket."""
    return "+Inf" if math.isinf(bound) else str(bound)


async def count_finished_jobs(store: Store, clock: Callable[[], float] = time.time) -> None:
    """Add finished jobs to the stored sums, until cancelled. Several servers may do so at the same time."""
    while True:
        try:
            is_more = True
            while is_more:
                is_more = await count_batch(store, clock())
                await asyncio.sleep(0)  # requests come first
        except UnavailableError as error:
            _log.warning("finished jobs are counted later", error=str(error))
        await asyncio.sleep(_COUNT_EVERY_S)


async def count_batch(store: Store, now: float, settled_after_s: float = _SETTLED_AFTER_S) -> bool:
    """Add up to 50 jobs that ended long enough ago to the stored sums; return whether there may be more."""
    finished = await store.totals.uncounted(now - settled_after_s, _BATCH)
    for job in finished:
        account = JobAccount(job)
        sums: Sums = {}
        try:
            await account.catch_up(store, job)
            sums = totals_of(account, now)
        except UnavailableError:
            raise
        except Exception as error:  # of one job: it is counted without its history, and the others with theirs
            _log.error("the history of a job could not be counted", job=job.id, exc_info=error)
        await store.totals.count(job.id, sums, now=now)
    return len(finished) == _BATCH
