"""Requests that submit a job, change it, or wait for a change."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from regroup.api.client.connection.errors import WaitTimeoutError
from regroup.api.client.connection.requests import Operation, Request, Sleep, send, to_model, url_path
from regroup.api.client.operations import uploads
from regroup.api.schemas.jobs import Job, ValidatedSpec
from regroup.api.schemas.resize import SpecSizes
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec

_FIRST_POLL_S = 0.1
_MAX_POLL_S = 1.0


def submit(spec: JobSpec | Mapping[str, Any], idempotency_key: str | None) -> Operation[Job]:
    """Upload the code that the spec names, if any, and submit the job."""
    body = as_json(spec)
    folder = uploads.working_dir_of(body)
    if folder is not None:
        address = yield from uploads.upload_folder(folder, data_folders=uploads.storage_of(body))
        body = {**body, "code": {"archive": address}}
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return (yield from send(Request("POST", url_path("jobs"), to_model(Job), body=body, headers=headers)))


def validate(spec: JobSpec | Mapping[str, Any]) -> Request[ValidatedSpec]:
    """Check a spec and fill in its defaults."""
    return Request(
        "POST", url_path("spec", "validate"), to_model(ValidatedSpec), body=as_json(spec), is_conditional=False
    )


def spec_sizes(spec: JobSpec | Mapping[str, Any]) -> Request[SpecSizes]:
    """Predict the sizes that a job of a spec could have."""
    return Request("POST", url_path("spec", "sizes"), to_model(SpecSizes), body=as_json(spec), is_conditional=False)


def get(job: str, project: str) -> Request[Job]:
    """Get a job."""
    return Request("GET", url_path("jobs", job), to_model(Job), params={"project": project})


def cancel(job: str, project: str) -> Request[Job]:
    """Cancel a job."""
    return _action(job, "cancel", project)


def release(job: str, project: str) -> Request[Job]:
    """Release the nodes of a failed job that holds them."""
    return _action(job, "release", project)


def suspend(job: str, project: str, reason: str) -> Request[Job]:
    """Suspend a job."""
    return _action(job, "suspend", project, body={"reason": reason})


def resume(job: str, project: str) -> Request[Job]:
    """Queue a suspended job again."""
    return _action(job, "resume", project)


def set_budget(job: str, project: str, *, device_hours: float | None, cost: float | None) -> Request[Job]:
    """Set the budget of a job."""
    body, params = {"device_hours": device_hours, "cost": cost}, {"project": project}
    return Request("PUT", url_path("jobs", job, "budget"), to_model(Job), params=params, body=body)


def resize(
    job: str, project: str, *, dp: int | None, tp: int | None, pp: int | None, ranks: int | None
) -> Request[Job]:
    """Resize a job."""
    size = {"dp": dp, "tp": tp, "pp": pp, "ranks": ranks}
    return _action(job, "resize", project, body={name: value for name, value in size.items() if value is not None})


def as_json(spec: JobSpec | Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec as plain data, with the fields that were set."""
    return spec.model_dump(mode="json", exclude_unset=True) if isinstance(spec, JobSpec) else dict(spec)


def requested_layout(job: Job) -> Layout | None:
    """Return the layout that a job is being resized to, or None if no resize is pending."""
    requested = job.intents.get("resize")
    return Layout(**requested["layout"]) if requested else None


def wait(job: str, project: str, timeout_s: float | None) -> Operation[Job]:
    """Poll a job until it has ended."""
    return (yield from _wait_until(job, project, timeout_s, lambda found: found.state.is_terminal, _progress))


def wait_for_suspend(job: str, project: str, timeout_s: float) -> Operation[Job]:
    """Poll a job until it is suspended, has ended, or its suspension was cancelled."""

    def is_done(found: Job) -> bool:
        return found.state == JobState.SUSPENDED or found.state.is_terminal or "suspend" not in found.intents

    return (yield from _wait_until(job, project, timeout_s, is_done, _progress))


def wait_for_resize(job: str, project: str, timeout_s: float) -> Operation[Layout | None]:
    """Poll a job until no resize is pending, or the job has ended."""

    def is_done(found: Job) -> bool:
        return requested_layout(found) is None or found.state.is_terminal

    def why_pending(found: Job) -> str:
        return next((each.message for each in found.conditions if each.type == "Resized"), "the resize is in progress")

    found = yield from _wait_until(job, project, timeout_s, is_done, why_pending)
    return found.layout


def _wait_until(
    job: str,
    project: str,
    timeout_s: float | None,
    is_done: Callable[[Job], bool],
    describe: Callable[[Job], str],
) -> Operation[Job]:
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s = _FIRST_POLL_S
    while True:
        found = yield from send(get(job, project))
        if is_done(found):
            return found
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise WaitTimeoutError(f"timed out after {timeout_s:g} s waiting for job {found.id}: {describe(found)}")
        yield Sleep(poll_s)
        poll_s = min(_MAX_POLL_S, poll_s * 1.5)


def _progress(job: Job) -> str:
    return f"it is {job.state} at step {job.step}"


def _action(job: str, action: str, project: str, **options: Any) -> Request[Job]:
    return Request("POST", url_path("jobs", job, action), to_model(Job), params={"project": project}, **options)
