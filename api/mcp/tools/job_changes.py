"""Tools that submit jobs and change them."""

import copy
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from regroup.api.client.operations.uploads import working_dir_of
from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Job, Project, Reason, Spec, SpecChanges, Step
from regroup.api.mcp.calls.tool import changes, reads
from regroup.api.schemas.history import Checkpoint
from regroup.api.schemas.wire import Wire
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState
from regroup.service.spec.budget import Amount

Degree = Annotated[int | None, Field(ge=1, le=131_072)]
Fields = Annotated[
    SpecChanges | None,
    Field(
        description='Changes of spec fields by dotted path, for example {"training.learning_rate": 0.0001}; null '
        "removes a field"
    ),
]
JobName = Annotated[
    str | None, Field(min_length=1, max_length=63, description="Name of the new job; null for that of the old one")
]


class ChangedJob(Wire):
    """A job after a change, or as it would be. `get_job` has all fields."""

    id: str
    name: str
    project: str
    state: JobState
    reason: str
    message: str
    step: int
    steps: int | None
    layout: Layout | None
    intents: dict[str, Any]
    """Pending requests, for example `cancel`."""
    resume_uri: str | None
    etag: str


class ValidSpec(Wire):
    """A valid spec with all defaults."""

    spec: dict[str, Any]
    layouts: list[Layout]
    """Layouts that the job can run with, the smallest first."""


async def job_state(caller: Caller, job: str, project: str) -> str:
    """Return the entity tag of a job."""
    return (await caller.client.get(job, project=project)).etag


@reads("Validate a job spec")
async def validate_spec(caller: Caller, spec: Spec) -> ValidSpec:
    """Check a job spec and fill in its defaults, without submitting it. An error names each invalid field."""
    found = await caller.client.validate(_without_folder(spec))
    return ValidSpec(spec=found.spec.model_dump(mode="json"), layouts=found.ladder)


class PredictedSize(Wire):
    """A size that a job could have."""

    layout: str
    step_s: float | None
    peak_bytes: float | None
    """Memory of the fullest device."""


class PredictedSizes(Wire):
    """Sizes of a spec, the smallest first."""

    sizes: list[PredictedSize]
    open_ranks: int | None
    why_not: str
    """Reason why there are no predictions."""


@reads("Predict the sizes of a spec")
async def predict_sizes(caller: Caller, spec: Spec) -> PredictedSizes:
    """Predict the step time and the memory of each size that a job of a spec could have. Submits nothing."""
    found = await caller.client.spec_sizes(_without_folder(spec))
    sizes = [
        PredictedSize(
            layout=str(each.layout),
            step_s=each.expected_step_s,
            peak_bytes=None if each.prediction is None else each.prediction.peak_bytes,
        )
        for each in found.sizes
    ]
    return PredictedSizes(sizes=sizes, open_ranks=found.open_ranks, why_not=found.why_not)


@changes("Submit a job", state=None)
async def submit_job(caller: Caller, spec: Spec) -> ChangedJob:
    """Submit a job. The spec names code by `code.archive`; to upload a folder, use `regroup submit --working-dir`."""
    return ChangedJob.model_validate(await caller.client.submit(_without_folder(spec)))


async def _source_state(caller: Caller, job: str, project: str) -> dict[str, str]:
    """Return the job that is submitted again: its name may belong to another one at the second call."""
    return {(await caller.client.get(job, project=project)).id: "source"}


@changes("Submit a job again", state=_source_state)
async def resubmit_job(
    caller: Caller,
    job: Job,
    set_fields: Fields = None,
    name: JobName = None,
    resume_from_step: Annotated[
        int | None,
        Field(ge=0, lt=2**53, description="Continue from the checkpoint of this step; null for step 0"),
    ] = None,
    resume_from_latest: Annotated[bool, Field(description="Continue from the newest checkpoint")] = False,
    project: Project = "default",
) -> ChangedJob:
    """Submit the spec of a job as a new job, with changes. This rescues a failed job, or restores an earlier step."""
    if resume_from_step is not None and resume_from_latest:
        raise SpecError([FieldIssue("resume_from_latest", "cannot be set with resume_from_step; set one of them")])
    found = await caller.client.get(job, project=project)
    if found.spec is None:
        raise SpecError([FieldIssue("job", "has a stored spec that is damaged; use submit_job with a spec", job)])
    spec = with_changes(found.spec.model_dump(mode="json", exclude_unset=True), set_fields or {})
    spec["project"] = found.project
    if name is not None:
        spec["name"] = name
    if resume_from_step is not None or resume_from_latest:
        spec["resume_from"] = f"{found.id}@{'latest' if resume_from_latest else resume_from_step}"
    return ChangedJob.model_validate(await caller.client.submit(_without_folder(spec)))


@changes("Cancel a job", state=job_state, is_destructive=True, is_idempotent=True)
async def cancel_job(caller: Caller, job: Job, project: Project = "default") -> ChangedJob:
    """Cancel a job. Its checkpoints stay; `resubmit_job` can continue from them."""
    return ChangedJob.model_validate(await caller.client.cancel(job, project=project))


@changes("Release the nodes of a failed job", state=job_state, is_destructive=True, is_idempotent=True)
async def release_job(caller: Caller, job: Job, project: Project = "default") -> ChangedJob:
    """Release the nodes of a failed job that holds them (`hold_on_failure`)."""
    return ChangedJob.model_validate(await caller.client.release(job, project=project))


@changes("Suspend a job", state=job_state, is_destructive=True, is_idempotent=True)
async def suspend_job(
    caller: Caller, job: Job, reason: Reason = "on request", project: Project = "default"
) -> ChangedJob:
    """Suspend a job: it saves its next step and releases its nodes. A queued job leaves the queue."""
    return ChangedJob.model_validate(await caller.client.suspend(job, reason=reason, project=project))


@changes("Resume a job", state=job_state, is_idempotent=True)
async def resume_job(caller: Caller, job: Job, project: Project = "default") -> ChangedJob:
    """Queue a suspended job again. It continues from its newest checkpoint."""
    return ChangedJob.model_validate(await caller.client.resume(job, project=project))


@changes("Resize a job", state=job_state, is_destructive=True, is_idempotent=True)
async def resize_job(
    caller: Caller,
    job: Job,
    dp: Annotated[Degree, Field(description="Data-parallel degree; set this or ranks")] = None,
    ranks: Annotated[Degree, Field(description="Number of ranks; the planner chooses the degrees")] = None,
    tp: Annotated[Degree, Field(description="Tensor-parallel degree; null to keep it")] = None,
    pp: Annotated[Degree, Field(description="Pipeline-parallel degree; null to keep it")] = None,
    project: Project = "default",
) -> ChangedJob:
    """Resize a queued or running job. It continues from its current step when the capacity is available."""
    return ChangedJob.model_validate(await caller.client.resize(job, dp, tp=tp, pp=pp, ranks=ranks, project=project))


@changes("Set the budget of a job", state=job_state, is_destructive=True, is_idempotent=True)
async def set_job_budget(
    caller: Caller,
    job: Job,
    device_hours: Annotated[Amount | None, Field(description="Device-hours; set this or cost")] = None,
    cost: Annotated[Amount | None, Field(description="Money, in the currency of the server's price table")] = None,
    project: Project = "default",
) -> ChangedJob:
    """Set the budget of a job that has not ended. A job that was suspended at its budget queues again by itself."""
    return ChangedJob.model_validate(
        await caller.client.set_budget(job, device_hours=device_hours, cost=cost, project=project)
    )


@changes("Pin a checkpoint", state=job_state, is_idempotent=True)
async def pin_checkpoint(caller: Caller, job: Job, step: Step, project: Project = "default") -> Checkpoint:
    """Pin the checkpoint of a step, so that retention does not remove it."""
    return await caller.client.pin_checkpoint(job, step, project=project)


@changes("Unpin a checkpoint", state=job_state, is_destructive=True, is_idempotent=True)
async def unpin_checkpoint(caller: Caller, job: Job, step: Step, project: Project = "default") -> Checkpoint:
    """Unpin the checkpoint of a step, so that retention may remove it."""
    return await caller.client.unpin_checkpoint(job, step, project=project)


def with_changes(spec: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with changed fields. A value of null removes the field.

    Raises:
        SpecError: a path leads through a value that is not a mapping.
    """
    changed = copy.deepcopy(dict(spec))
    for path, value in fields.items():
        *parents, last = path.split(".")
        place = changed
        for part in parents:
            inside = place.setdefault(part, {})
            if not isinstance(inside, dict):
                raise SpecError([FieldIssue(path, f"cannot be set, because {part!r} is not a mapping; set {part!r}")])
            place = cast(dict[str, Any], inside)
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return changed


def _without_folder(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a spec that names no folder of this machine.

    Raises:
        SpecError: it names one. The client would upload its files, and who calls the tool may not be who may read them.
    """
    if working_dir_of(spec) is not None:
        message = "cannot be uploaded by a tool; upload it with `regroup submit --working-dir`, or name `code.archive`"
        raise SpecError([FieldIssue("code.working_dir", message)])
    return spec
