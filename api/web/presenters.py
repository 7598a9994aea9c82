"""Conversion of the store's rows to the API's models."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from regroup.api.schemas import history, jobs
from regroup.api.schemas.jobs import Job, JobSummary
from regroup.api.schemas.server import ServerLinks
from regroup.api.web.http import etag
from regroup.service.domain.rank_reports import decode_rank_reports
from regroup.service.domain.states import JobState
from regroup.service.operations.jobs import JobDetail, PredictedValue
from regroup.service.policy.tracker_links import tracker_links
from regroup.service.settings import Settings
from regroup.service.spec.job import JobSpec
from regroup.service.store.rows.curves import Curves
from regroup.service.store.rows.records import PLATFORM_FAULT, Condition, Incident, JobRow

ModelT = TypeVar("ModelT", bound=BaseModel)
_log = structlog.get_logger(__name__)
_EMPTY: Mapping[str, Any] = {
    "conditions": [],
    "incidents": [],
    "intents": {},
    "placement": [],
    "rank_phases": {},
    "result": {},
}
"""Values in place of those that are not valid, of fields that are never null."""
_OWN_RESULTS = frozenset({"step", "parameters", "samples", "parameter_count"})


def server_links(settings: Settings) -> ServerLinks:
    """Return the addresses of other systems that the operator configured."""
    return ServerLinks(grafana=settings.grafana_url, ray_dashboard=settings.ray_dashboard_url)


def job_summary(job: JobRow) -> JobSummary:
    """Convert a row to a job as lists contain it."""
    return _validate(JobSummary, _summary_fields(job))


def job_detail(detail: JobDetail, spec: JobSpec | None = None) -> Job:
    """Convert a job and its details to the full API model.

    Args:
        spec: the spec if the caller has it, so that the stored one is not validated again.
    """
    job, result = detail.job, detail.job.result or {}
    reports = decode_rank_reports(job.rank_phases)
    return _validate(
        Job,
        {
            **_summary_fields(job),
            "error": job.error,
            "digest": {"parameters": result.get("parameters"), "samples": result.get("samples")},
            "parameter_count": result.get("parameter_count"),
            "result": {key: value for key, value in result.items() if key not in _OWN_RESULTS},
            "conditions": job.conditions,
            "phase": job.phase,
            "save": job.save,
            "intents": job.intents,
            "rank_phases": {rank: _place(report) for rank, report in reports.items()},
            "incidents": incidents(detail.incidents),
            "prediction": detail.comparison,
            "placement": list(detail.generation.ranks) if detail.generation else [],
            "storage_uri": job.storage_uri,
            "resume_uri": job.resume_uri,
            "links": [] if "spec" in job.damaged else tracker_links(job.id, job.spec),
            "spec": None if "spec" in job.damaged else spec or job.spec,
        },
    )


def _place(report: Any) -> Any:
    """Return step and phase of a rank, without the times that follow them."""
    return report[:2] if isinstance(report, list) else report


def incidents(found: Sequence[Incident]) -> list[jobs.Incident]:
    """Convert and number all incidents of a job, oldest first. Damaged ones are left out."""
    shown = list[jobs.Incident]()
    for number, incident in enumerate(found, 1):
        try:
            shown.append(jobs.Incident.model_validate({**incident.data, "number": number}))
        except ValidationError as error:
            _log.error("the record of an incident is damaged", incident=incident.id, error=str(error))
    return shown


def curves(names: Sequence[str], found: Curves, predicted: Sequence[PredictedValue]) -> history.Curves:
    """Convert folded steps to one curve for each metric."""
    made = list[history.Curve]()
    for name in names:
        lines: dict[int | None, history.CurvePoints] = {None: _no_points()}
        for point in found.points:
            if (value := point.values.get(name)) is None:
                continue
            line = lines.setdefault(point.repeated_generation, _no_points())
            line.steps.append(point.step)
            line.times_s.append(point.time_s)
            line.mean.append(value.mean)
            line.low.append(value.low)
            line.high.append(value.high)
        repeated = [
            history.RepeatedCurve(generation=key, points=line) for key, line in lines.items() if key is not None
        ]
        of_metric = [
            history.PredictedValue(generation=each.generation, start_step=each.start_step, value=each.value)
            for each in predicted
            if each.metric == name
        ]
        made.append(history.Curve(metric=name, committed=lines[None], repeated=repeated, predicted=of_metric))
    return history.Curves(steps_per_point=found.steps_per_point, curves=made)


def _no_points() -> history.CurvePoints:
    return history.CurvePoints(steps=[], times_s=[], mean=[], low=[], high=[])


def _validate(model: type[ModelT], fields: dict[str, Any]) -> ModelT:
    """Convert fields of a job. Optional fields whose stored values are not valid are null, with a condition."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        invalid = {str(issue["loc"][0]) for issue in error.errors()}
        _log.error("the record of a job is not valid", job=fields.get("id"), fields=sorted(invalid))
        sound = {name: value for name, value in fields.items() if name not in invalid}
        empty = {name: _EMPTY.get(name) for name in invalid}
        if "conditions" in sound and not any(each.type == PLATFORM_FAULT for each in sound["conditions"]):
            message = f"the stored record of this job is not valid: {', '.join(sorted(invalid))}; cancel the job"
            fault = Condition(PLATFORM_FAULT, True, "invalid_record", message)
            sound["conditions"] = (*sound["conditions"], fault)
        return model.model_validate({**sound, **empty})


def _summary_fields(job: JobRow) -> dict[str, Any]:
    names = JobSummary.model_fields.keys() - {"eta_s", "etag"}
    eta_s = None
    if job.state is JobState.RUNNING and job.step_duration_s and job.steps is not None:
        eta_s = None if job.step_is_estimated else job.step_duration_s * max(0, job.steps - job.step)
    goodput = job.goodput if job.step else None  # without a step there is nothing that it could measure
    return {**{name: getattr(job, name) for name in names}, "eta_s": eta_s, "goodput": goodput, "etag": etag(job)}
