"""Requests that read a job: its history, current state and output."""

import base64
from collections.abc import Mapping, Sequence

import httpx2

from regroup.api.client.connection.requests import (
    Listing,
    Operation,
    Page,
    Params,
    Request,
    send,
    to_model,
    url_path,
)
from regroup.api.client.connection.streams import EventStream, ExecCall
from regroup.api.schemas import history
from regroup.api.schemas import jobs as schemas
from regroup.api.schemas.resize import JobSizes
from regroup.api.schemas.stacks import RankStack, Stacks
from regroup.api.schemas.story.incident import EvidencePart, IncidentDetail
from regroup.api.schemas.story.story import Story


def jobs(
    state: Sequence[str],
    project: str | None,
    name: str | None,
    author: str | None,
    labels: Mapping[str, str] | None,
    ids: Sequence[str] = (),
) -> Listing[schemas.JobSummary]:
    """List jobs, newest first."""
    label = [f"{key}={value}" for key, value in (labels or {}).items()]
    filters: Params = {"state": state, "project": project, "name": name, "author": author, "label": label, "id": ids}

    def parse(response: httpx2.Response) -> Page[schemas.JobSummary]:
        found = to_model(schemas.JobList)(response)
        return Page(found.jobs, found.next_page_token or None)

    def request_page(token: str) -> Request[Page[schemas.JobSummary]]:
        return Request("GET", url_path("jobs"), parse, params={**filters, "page_token": token or None})

    return Listing(request_page, "")


def why(job: str, project: str) -> Request[schemas.Why]:
    """Explain the state of a job."""
    return Request("GET", url_path("jobs", job, "why"), to_model(schemas.Why), params={"project": project})


def stacks(job: str, project: str) -> Request[list[RankStack]]:
    """Get the stacks of all ranks."""
    path = url_path("jobs", job, "stacks")
    return Request("GET", path, lambda response: to_model(Stacks)(response).ranks, params={"project": project})


def incidents(job: str, project: str) -> Request[list[schemas.Incident]]:
    """List the incidents of a job."""

    def parse(response: httpx2.Response) -> list[schemas.Incident]:
        return to_model(history.IncidentList)(response).incidents

    return Request("GET", url_path("jobs", job, "incidents"), parse, params={"project": project})


def story(job: str, project: str, points: int) -> Request[Story]:
    """Get the course of a job."""
    params: Params = {"project": project, "points": points}
    return Request("GET", url_path("jobs", job, "story"), to_model(Story), params=params)


def incident(job: str, number: int, project: str) -> Request[IncidentDetail]:
    """Get an incident of a job."""
    path = url_path("jobs", job, "incidents", number)
    return Request("GET", path, to_model(IncidentDetail), params={"project": project})


def evidence_file(
    job: str, number: int, name: str, project: str, *, offset: int, limit: int | None
) -> Request[EvidencePart]:
    """Get a part of a file of the evidence of an incident."""
    path = url_path("jobs", job, "incidents", number, "file")
    params: Params = {"project": project, "name": name, "offset": offset, "limit": limit}
    return Request("GET", path, to_model(EvidencePart), params=params)


def evidence(job: str, number: int, project: str) -> Request[bytes]:
    """Get the evidence of an incident."""
    path = url_path("jobs", job, "incidents", number, "evidence")
    return Request("GET", path, lambda response: response.content, params={"project": project})


def generations(job: str, project: str) -> Request[list[history.Generation]]:
    """List the generations of a job."""

    def parse(response: httpx2.Response) -> list[history.Generation]:
        return to_model(history.GenerationList)(response).generations

    return Request("GET", url_path("jobs", job, "generations"), parse, params={"project": project})


def ledger(job: str, project: str) -> Request[history.Ledger]:
    """Get the sample ledger of a job."""
    return Request("GET", url_path("jobs", job, "ledger"), to_model(history.Ledger), params={"project": project})


def curves(
    job: str, project: str, metrics: Sequence[str], points: int, from_step: int, to_step: int | None
) -> Request[history.Curves]:
    """Get curves of metrics of a job."""
    span: Params = {"points": points, "from_step": from_step, "to_step": to_step}
    params: Params = {"project": project, "metric": list(metrics), **span}
    return Request("GET", url_path("jobs", job, "curves"), to_model(history.Curves), params=params)


def checkpoints(job: str, project: str, *, removed: bool) -> Request[list[history.Checkpoint]]:
    """List the checkpoints of a job."""

    def parse(response: httpx2.Response) -> list[history.Checkpoint]:
        return to_model(history.CheckpointList)(response).checkpoints

    params: Params = {"project": project, "removed": removed}
    return Request("GET", url_path("jobs", job, "checkpoints"), parse, params=params)


def pin_checkpoint(job: str, step: int, project: str) -> Request[history.Checkpoint]:
    """Exempt a checkpoint from retention."""
    path = url_path("jobs", job, "checkpoints", step, "pin")
    return Request("PUT", path, to_model(history.Checkpoint), params={"project": project})


def unpin_checkpoint(job: str, step: int, project: str) -> Request[history.Checkpoint]:
    """Make a checkpoint subject to retention."""
    path = url_path("jobs", job, "checkpoints", step, "pin")
    return Request("DELETE", path, to_model(history.Checkpoint), params={"project": project})


def checkpoint_files(job: str, step: int, project: str) -> Request[history.CheckpointFiles]:
    """List the files of a checkpoint."""
    path = url_path("jobs", job, "checkpoints", step, "files")
    return Request("GET", path, to_model(history.CheckpointFiles), params={"project": project})


def verify_checkpoint(
    job: str, step: int, project: str, *, contents: bool
) -> Operation[history.CheckpointVerification]:
    """Verify a checkpoint, part by part, and return the result of all parts together."""
    path, faults, position = url_path("jobs", job, "checkpoints", step, "verify"), list[history.CheckpointFault](), ""
    while True:
        body = {"contents": contents, "position": position}
        parse, params = to_model(history.CheckpointVerification), {"project": project}
        part = yield from send(Request("POST", path, parse, params=params, body=body, is_conditional=False))
        faults += part.faults
        position = part.position
        if part.is_complete:
            return part.model_copy(update={"faults": faults})


def job_sizes(job: str, project: str) -> Request[JobSizes]:
    """List the sizes that a job can have."""
    return Request("GET", url_path("jobs", job, "sizes"), to_model(JobSizes), params={"project": project})


def events(job: str, project: str, after: int) -> Listing[history.Event]:
    """List the events numbered above `after`."""

    def parse(response: httpx2.Response) -> Page[history.Event]:
        found = to_model(history.EventList)(response).events
        return Page(found, str(found[-1].number) if found else None)

    path = url_path("jobs", job, "events")
    return Listing(
        lambda cursor: Request("GET", path, parse, params={"project": project, "after": cursor}), str(after), "limit"
    )


def follow_events(job: str, project: str, after: int) -> EventStream[history.Event]:
    """Follow the events numbered above `after`."""
    path, parse = url_path("jobs", job, "events"), history.Event.model_validate_json
    return EventStream(path, parse, {"project": project}, str(after))


def steps(job: str, project: str, after: int) -> Listing[history.Step]:
    """List the committed steps above `after`."""

    def parse(response: httpx2.Response) -> Page[history.Step]:
        found = to_model(history.StepList)(response).steps
        return Page(found, str(found[-1].step) if found else None)

    path = url_path("jobs", job, "steps")
    return Listing(
        lambda cursor: Request("GET", path, parse, params={"project": project, "after": cursor}), str(after), "limit"
    )


def step_page(job: str, project: str, after: int, limit: int) -> Request[list[history.Step]]:
    """Get the first committed steps above `after`."""

    def parse(response: httpx2.Response) -> list[history.Step]:
        return to_model(history.StepList)(response).steps

    params: Params = {"project": project, "after": after, "limit": limit}
    return Request("GET", url_path("jobs", job, "steps"), parse, params=params)


def follow_steps(job: str, project: str, after: int) -> EventStream[history.Step]:
    """Follow the step rows numbered above `after`."""
    path, parse = url_path("jobs", job, "steps"), history.Step.model_validate_json
    return EventStream(path, parse, {"project": project}, str(after))


def log(job: str, project: str, rank: int, generation: int | None, stream: str) -> Request[str]:
    """Get the output of a rank in one generation."""
    params = _log_params(project, rank, generation, stream)
    return Request("GET", url_path("jobs", job, "logs"), lambda response: response.text, params=params)


def log_part(
    job: str, project: str, rank: int, generation: int | None, stream: str, offset: int, limit: int
) -> Request[history.LogPart]:
    """Get a part of the output of a rank in one generation."""

    def parse(response: httpx2.Response) -> history.LogPart:
        following, is_complete = (response.headers[name] for name in (history.NEXT_OFFSET, history.COMPLETE))
        size = int(response.headers.get(history.SIZE, "0"))
        return history.LogPart(
            text=response.text, next_offset=int(following), is_complete=is_complete == "true", size_bytes=size
        )

    params: Params = {**_log_params(project, rank, generation, stream), "offset": offset, "limit": limit}
    return Request("GET", url_path("jobs", job, "logs"), parse, params=params)


def follow_log(job: str, project: str, rank: int, generation: int | None, stream: str) -> EventStream[str]:
    """Follow the output of a rank through its generations."""
    params = _log_params(project, rank, generation, stream)
    return EventStream(
        url_path("jobs", job, "logs"), lambda data: history.LogPiece.model_validate_json(data).text, params
    )


def exec(
    job: str, command: Sequence[str], project: str, *, rank: int, timeout: float | str | None, stdin: bytes
) -> ExecCall:
    """Run a command on the node of a rank."""
    body = {
        "command": list(command),
        "rank": rank,
        "timeout": timeout,
        "stdin": base64.b64encode(stdin).decode(),
    }
    return ExecCall(url_path("jobs", job, "exec"), {"project": project}, body)


def _log_params(project: str, rank: int, generation: int | None, stream: str) -> Params:
    return {"project": project, "rank": rank, "generation": generation, "stream": stream}
