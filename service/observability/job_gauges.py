"""The gauges of each live job, and how their values follow from its account. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.domain.supervisor_phase import SupervisorPhase
from regroup.service.observability import metric_names as names
from regroup.service.observability.metric_names import Metric, ProgressGauges
from regroup.service.policy.accounting import goodput
from regroup.service.store.rows.records import MIRRORED, WELL_USED, JobRow

Value = Callable[[JobAccount, float], float | None]


def _restores(job: JobRow) -> bool:
    """Return whether a job reads its state from a checkpoint."""
    return (job.phase or {}).get("phase") == SupervisorPhase.RESTORING


def _of_progress(
    gauges: ProgressGauges, figures_of: Callable[[JobRow], Mapping[str, Any] | None]
) -> Iterable[tuple[Metric, Value]]:
    """Return the gauges with functions that read their values; None for a job that moves no such bytes."""
    for each in fields(gauges):
        yield (
            getattr(gauges, each.name),
            lambda account, _, name=each.name: (figures_of(account.job) or {}).get(name),
        )


def _mirror_sets(job: JobRow) -> float | None:
    """Return the number of mirror sets of a job; None if it has reported no mirrors."""
    fewer = next((each.reason for each in job.conditions if each.type == MIRRORED), None)
    if fewer is None:
        return None if job.mirrored_step is None else 2.0
    return 0.0 if fewer == "no_mirror" else 1.0


JOB_GAUGES: Sequence[tuple[Metric, Value]] = (
    (names.JOB_STEP, lambda account, _: account.job.step),
    (names.JOB_STEPS, lambda account, _: account.job.steps),
    (names.JOB_LOSS, lambda account, _: account.job.loss),
    (names.JOB_VALIDATION_LOSS, lambda account, _: account.job.validation_loss),
    (names.JOB_TOKENS, lambda account, _: account.job.tokens_per_s),
    (names.JOB_STEP_SECONDS, lambda account, _: account.job.step_duration_s),
    (names.JOB_GENERATION, lambda account, _: account.job.generation),
    (names.JOB_WORLD_SIZE, lambda account, _: account.world_size),
    (names.JOB_GOODPUT, lambda account, now: goodput(account.seconds(now))),
    (names.JOB_MFU, lambda account, _: account.job.mfu),
    (names.JOB_EXPOSED, lambda account, _: account.job.exposed_communication),
    (names.JOB_PEAK_BYTES, lambda account, _: account.job.peak_bytes),
    (names.JOB_IDLE, lambda account, _: account.job.pipeline_idle),
    *_of_progress(names.RESTORE_PROGRESS, lambda job: job.phase if _restores(job) else None),
    *_of_progress(names.SAVE_PROGRESS, lambda job: job.save),
    (names.JOB_MIRRORED, lambda account, _: account.job.mirrored_step),
    (names.JOB_MIRROR_SETS, lambda account, _: _mirror_sets(account.job)),
    (names.JOB_INCIDENTS, lambda account, _: len(account.incidents)),
    (names.JOB_STRAGGLERS, lambda account, _: account.stragglers),
    (names.JOB_LOW_USE, lambda account, _: any(each.type == WELL_USED for each in account.job.conditions)),
)
"""Gauge → function that returns its value of a live job at a time, in Unix seconds. None: it has none now."""
