"""Conversion of the store's rows to the API's models."""

from collections.abc import Sequence
from typing import Any

from regroup.api.schemas import jobs
from regroup.api.schemas.jobs import Job, JobSummary
from regroup.service.domain.states import JobState
from regroup.service.operations.jobs import JobDetail
from regroup.service.store.records import Incident, JobRow

_OWN_RESULTS = frozenset({"step", "parameters", "samples", "parameter_count"})


def job_summary(job: JobRow) -> JobSummary:
    """Convert a row to a job as lists contain it."""
    return JobSummary.model_validate(_summary_fields(job))


def job_detail(detail: JobDetail) -> Job:
    """Convert a job and its details to the full API model."""
    job, result = detail.job, detail.job.result or {}
    return Job.model_validate(
        {
            **_summary_fields(job),
            "error": job.error,
            "digest": {"parameters": result.get("parameters"), "samples": result.get("samples")},
            "parameter_count": result.get("parameter_count"),
            "result": {key: value for key, value in result.items() if key not in _OWN_RESULTS},
            "conditions": job.conditions,
            "phase": job.phase,
            "intents": job.intents,
            "rank_phases": job.rank_phases,
            "incidents": incidents(detail.incidents),
            "prediction": detail.comparison,
            "placement": detail.generation.ranks if detail.generation else [],
            "storage_uri": job.storage_uri,
            "resume_uri": job.resume_uri,
            "spec": job.spec,
        }
    )


def incidents(found: Sequence[Incident]) -> list[jobs.Incident]:
    """Convert and number all incidents of a job, oldest first."""
    return [
        jobs.Incident.model_validate({**incident.data, "number": number}) for number, incident in enumerate(found, 1)
    ]


def _summary_fields(job: JobRow) -> dict[str, Any]:
    names = JobSummary.model_fields.keys() - {"eta_s"}
    eta_s = None
    if job.state is JobState.RUNNING and job.step_duration_s and job.steps is not None:
        eta_s = job.step_duration_s * max(0, job.steps - job.step)
    return {**{name: getattr(job, name) for name in names}, "eta_s": eta_s}
