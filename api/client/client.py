"""The typed Python client.

    with Client("http://127.0.0.1:8500") as client:
        job = client.submit(spec)
        for event in client.events(job.id, follow=True):
            print(event.type, event.data)
        assert client.wait(job.id).state == "SUCCEEDED"

Requests are repeated while the server is away (a submit under one key, so it makes one job), and streams resume where
they broke off. Imports neither torch nor ray.
"""

import base64
import json
import random
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from regroup.api.client import drains, plans, probes, projects, resize, suspend, uploads
from regroup.api.client import exec as exec_stream
from regroup.api.client.nodes import NodeCalls
from regroup.api.client.sse import ServerEvent, read_events
from regroup.api.schemas import jobs as schemas
from regroup.api.schemas.exec import ExecEvent
from regroup.api.schemas.stacks import RankStack, Stacks
from regroup.service.domain.errors import RegroupError
from regroup.service.domain.states import JobState
from regroup.service.spec.job import JobSpec

DEFAULT_URL = "http://127.0.0.1:8500"
_AGAIN = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_HEARTBEAT_S = 15.0
_TIMEOUT_S = 30.0
_CONNECT_S = 5.0
T = TypeVar("T", bound=BaseModel)
Cursor = TypeVar("Cursor", str, int)
Item = TypeVar("Item")
Params = Mapping[str, str | int | bool | Sequence[str] | None]


class ApiError(RegroupError):
    """The server refused a request; `problem` says what and why."""

    def __init__(self, problem: schemas.Problem) -> None:
        self.problem = problem
        fields = "".join(f"\n  {wrong.pointer}: {wrong.detail}" for wrong in problem.errors)
        super().__init__(f"{problem.title}: {problem.detail}{fields if len(problem.errors) > 1 else ''}")

    def __reduce__(self) -> tuple[type["ApiError"], tuple[schemas.Problem]]:
        return (ApiError, (self.problem,))


class ServerUnreachableError(RegroupError):
    """The server does not answer; it may or may not have done what was asked."""


class JobTimeoutError(RegroupError):
    """The job was not over in time; it goes on."""


class Client(
    NodeCalls,
    drains.DrainCalls,
    plans.PlanCalls,
    probes.ProbeCalls,
    projects.ProjectCalls,
    resize.ResizeCalls,
    suspend.SuspendCalls,
):
    """One server.

    Args:
        url: e.g. `http://127.0.0.1:8500`.
        patience_s: how long a request is repeated while the server is away.
        transport: in place of the network, for tests.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, patience_s: float = 15.0, transport: httpx2.BaseTransport | None = None
    ) -> None:
        self.url = url
        self._patience_s = patience_s
        timeout = httpx2.Timeout(_TIMEOUT_S, connect=_CONNECT_S)
        self._http = httpx2.Client(base_url=url, timeout=timeout, transport=transport, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self._http.close()

    # ------------------------------------------------------------ jobs

    def submit(self, spec: JobSpec | Mapping[str, Any], *, idempotency_key: str | None = None) -> schemas.Job:
        """Submit a job. However often the request has to be repeated, it makes one.

        A mapping may name a folder of code, `code: {working_dir: DIR}`, which is uploaded first.
        """
        whole = spec.model_dump(mode="json", exclude_unset=True) if isinstance(spec, JobSpec) else spec
        body = uploads.with_code_uploaded(whole, self.upload_working_dir)
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._call(schemas.Job, "POST", "/v1/jobs", body=body, headers=headers)

    def validate(self, spec: JobSpec | Mapping[str, Any]) -> schemas.ValidatedSpec:
        """Check a spec and fill in its defaults; nothing is submitted."""
        body = spec.model_dump(mode="json", exclude_unset=True) if isinstance(spec, JobSpec) else dict(spec)
        return self._call(schemas.ValidatedSpec, "POST", "/v1/spec/validate", body=body)

    def get(self, job: str, *, project: str = "default") -> schemas.Job:
        """A job by id or name."""
        return self._call(schemas.Job, "GET", f"/v1/jobs/{job}", params={"project": project})

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        project: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[schemas.JobSummary]:
        """Jobs, newest first, page by page."""
        label = [f"{key}={value}" for key, value in (labels or {}).items()]
        wanted: Params = {"state": state, "project": project, "name": name, "label": label}

        def page(token: str) -> tuple[list[schemas.JobSummary], str | None]:
            found = self._call(schemas.JobList, "GET", "/v1/jobs", params={**wanted, "page_token": token})
            return found.jobs, found.next_page_token or None

        return _pages(page, "")

    def cancel(self, job: str, *, project: str = "default", etag: str | None = None) -> schemas.Job:
        """Ask a job to stop; with `etag`, only if nothing has happened to it since."""
        headers = {} if etag is None else {"If-Match": etag}
        return self._call(schemas.Job, "POST", f"/v1/jobs/{job}/cancel", params={"project": project}, headers=headers)

    def release(self, job: str, *, project: str = "default") -> schemas.Job:
        """Let go of the nodes of a job that failed and is held."""
        return self._call(schemas.Job, "POST", f"/v1/jobs/{job}/release", params={"project": project})

    def wait(self, job: str, *, timeout_s: float | None = None, project: str = "default") -> schemas.Job:
        """The job once it is over.

        Raises:
            JobTimeoutError: it was not over after `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while not JobState((found := self.get(job, project=project)).state).is_terminal:
            if deadline is not None and time.monotonic() > deadline:
                raise JobTimeoutError(f"job {found.id} is {found.state} at step {found.step} after {timeout_s} s")
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 1.5)
        return found

    def why(self, job: str, *, project: str = "default") -> schemas.Why:
        """Why a job waits, failed or is slow, and what to do."""
        return self._call(schemas.Why, "GET", f"/v1/jobs/{job}/why", params={"project": project})

    def stacks(self, job: str, *, project: str = "default") -> list[RankStack]:
        """Where every thread of every rank is now, in rank order; raises ApiError if the job has no ranks."""
        path = f"/v1/jobs/{job}/stacks"
        return self._call(Stacks, "GET", path, params={"project": project}).ranks

    def exec(
        self,
        job: str,
        command: Sequence[str],
        *,
        rank: int = 0,
        timeout: float | str | None = None,
        stdin: bytes = b"",
        project: str = "default",
    ) -> Iterator[ExecEvent]:
        """Run a command in the place of a rank: `ExecStarted`, `ExecOutput` as it comes, `ExecExit`.

        Closing the iterator ends the command. See `exec_stream.events` for what it raises.
        """
        asked: dict[str, Any] = {"command": list(command), "rank": rank, "timeout": timeout}
        asked["stdin"] = base64.b64encode(stdin).decode()
        timeouts = httpx2.Timeout(3 * _HEARTBEAT_S, connect=_CONNECT_S)

        def opened() -> AbstractContextManager[httpx2.Response]:
            path = f"/v1/jobs/{job}/exec"
            return self._http.stream("POST", path, params={"project": project}, json=asked, timeout=timeouts)

        return exec_stream.events(opened, _refused)

    def incidents(self, job: str, *, project: str = "default") -> list[schemas.Incident]:
        """Oldest first."""
        path = f"/v1/jobs/{job}/incidents"
        return self._call(schemas.IncidentList, "GET", path, params={"project": project}).incidents

    def evidence(self, job: str, number: int, *, project: str = "default") -> bytes:
        """What was known of incident `number`, and taken before its ranks were ended: a zip with a `summary.txt`."""
        return self._send("GET", f"/v1/jobs/{job}/incidents/{number}/evidence", params={"project": project}).content

    def generations(self, job: str, *, project: str = "default") -> list[schemas.Generation]:
        """Oldest first."""
        path = f"/v1/jobs/{job}/generations"
        return self._call(schemas.GenerationList, "GET", path, params={"project": project}).generations

    def ledger(self, job: str, *, project: str = "default") -> schemas.Ledger:
        """Whether every committed step saw exactly its samples, once."""
        return self._call(schemas.Ledger, "GET", f"/v1/jobs/{job}/ledger", params={"project": project})

    def checkpoints(self, job: str, *, removed: bool = False, project: str = "default") -> list[schemas.Checkpoint]:
        """By step; those no longer in storage only if `removed`."""
        params: Params = {"project": project, "removed": removed}
        return self._call(schemas.CheckpointList, "GET", f"/v1/jobs/{job}/checkpoints", params=params).checkpoints

    def pin_checkpoint(self, job: str, step: int, *, project: str = "default") -> schemas.Checkpoint:
        """Exempt a checkpoint from the retention policy."""
        path = f"/v1/jobs/{job}/checkpoints/{step}/pin"
        return self._call(schemas.Checkpoint, "PUT", path, params={"project": project})

    def unpin_checkpoint(self, job: str, step: int, *, project: str = "default") -> schemas.Checkpoint:
        """Make a checkpoint subject to the retention policy again."""
        path = f"/v1/jobs/{job}/checkpoints/{step}/pin"
        return self._call(schemas.Checkpoint, "DELETE", path, params={"project": project})

    # ------------------------------------------------------------ code

    def upload_working_dir(
        self, path: str | Path, *, on_progress: uploads.Progress | None = None, also: Path | None = None
    ) -> str:
        """Pack a folder of code and upload what the server lacks of it; returns its address, for `code.archive`.

        Args:
            on_progress: told the bytes that are there and the bytes in all.
            also: another folder, whose content is put beside that of `path`.

        Raises:
            ArchiveError: the folder cannot travel, or is larger than the server takes.
        """
        return uploads.upload_folder(uploads.Uploads(self._send), Path(path), on_progress, also)

    def upload_archive(self, path: str | Path, *, on_progress: uploads.Progress | None = None) -> str:
        """Upload a tar file of code; returns its address."""
        return uploads.upload_file(uploads.Uploads(self._send), Path(path), on_progress)

    # ------------------------------------------------------------ what grows

    def events(
        self, job: str, *, after: int = 0, follow: bool = False, project: str = "default"
    ) -> Iterator[schemas.Event]:
        """Events numbered above `after`; with `follow`, until the job is over."""
        path = f"/v1/jobs/{job}/events"
        if follow:
            told = self._follow(path, {"project": project}, str(after))
            return (schemas.Event.model_validate_json(event.data) for event in told)

        def page(after: int) -> tuple[list[schemas.Event], int | None]:
            found = self._call(schemas.EventList, "GET", path, params={"project": project, "after": after}).events
            return found, found[-1].number if found else None

        return _pages(page, after)

    def steps(
        self, job: str, *, after: int = 0, follow: bool = False, project: str = "default"
    ) -> Iterator[schemas.Step]:
        """Committed steps above step `after`. With `follow`: every row numbered above `after` until the job is over;
        a row of a later generation replaces those of its step and beyond."""
        path = f"/v1/jobs/{job}/steps"
        if follow:
            told = self._follow(path, {"project": project}, str(after))
            return (schemas.Step.model_validate_json(event.data) for event in told)

        def page(after: int) -> tuple[list[schemas.Step], int | None]:
            found = self._call(schemas.StepList, "GET", path, params={"project": project, "after": after}).steps
            return found, found[-1].step if found else None

        return _pages(page, after)

    def logs(
        self,
        job: str,
        *,
        rank: int = 0,
        generation: int | None = None,
        stream: str = "stdout",
        follow: bool = False,
        project: str = "default",
    ) -> Iterator[str]:
        """A rank's output in pieces: of one generation (the newest if None); with `follow`, on through later ones."""
        path = f"/v1/jobs/{job}/logs"
        params: Params = {"project": project, "rank": rank, "generation": generation, "stream": stream}
        if follow:
            for event in self._follow(path, params, None):
                yield schemas.LogPiece.model_validate_json(event.data).text
            return
        yield self._send("GET", path, params=params).text

    # ------------------------------------------------------------ the server

    def health(self) -> schemas.Health:
        """Return the health of each component of the server, also of a server that is not ready."""
        answer = self._http.get("/readyz", params={"verbose": True})
        return schemas.Health.model_validate_json(answer.content)

    def version(self) -> schemas.Version:
        """What serves."""
        return self._call(schemas.Version, "GET", "/version")

    def spec_schema(self) -> dict[str, Any]:
        """JSON Schema of a job spec."""
        return self._send("GET", "/v1/spec/schema").json()

    # ------------------------------------------------------------ how

    def _call(self, model: type[T], method: str, path: str, **options: Any) -> T:
        return model.model_validate_json(self._send(method, path, **options).content)

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        data: bytes | None = None,
        headers: Any = None,
        also: Collection[int] = (),
        timeout_s: float = _TIMEOUT_S,
    ) -> httpx2.Response:
        """The answer, once there is one: a success, or of a status in `also`."""
        asked: dict[str, Any] = {"params": _given(params), "json": body, "content": data, "headers": headers}
        timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
        deadline = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            unreachable: httpx2.TransportError | None = None
            answer: httpx2.Response | None = None
            try:
                answer = self._http.request(method, path, timeout=timeout, **asked)
            except httpx2.TransportError as error:
                unreachable = error
            if answer is not None and (answer.is_success or answer.status_code in also):
                return answer
            if answer is not None and answer.status_code not in _AGAIN:
                raise _refused(answer)
            if time.monotonic() + pause_s > deadline:
                if answer is not None:
                    raise _refused(answer)
                raise ServerUnreachableError(f"no answer from {self._http.base_url}: {unreachable}") from unreachable
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _follow(self, path: str, params: Params, last: str | None) -> Generator[ServerEvent]:
        """Events of a stream to its end, over as many connections as it takes."""
        deadline = time.monotonic() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        timeout = httpx2.Timeout(5.0, read=3 * _HEARTBEAT_S)
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
            reason: object = "the stream ended early"
            try:
                with self._http.stream(
                    "GET", path, params=_given({**params, "follow": True}), headers=headers, timeout=timeout
                ) as answer:
                    if answer.is_success:
                        for event in read_events(answer.iter_bytes()):
                            if event.kind == "end":
                                return
                            last = event.id
                            yield event
                            deadline = time.monotonic() + self._patience_s
                            pause_s = _FIRST_PAUSE_S
                    else:
                        answer.read()
                        if answer.status_code not in _AGAIN:
                            raise _refused(answer)
                        reason = answer.status_code
            except httpx2.TransportError as error:
                reason = error
            if time.monotonic() + pause_s > deadline:
                raise ServerUnreachableError(f"the stream {path} of {self._http.base_url} broke off: {reason}")
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)


def _pages(page: Callable[[Cursor], tuple[Sequence[Item], Cursor | None]], cursor: Cursor | None) -> Iterator[Item]:
    """All items: `page` gives those after a cursor, and the next cursor, None at the end."""
    while cursor is not None:
        items, cursor = page(cursor)
        yield from items


def _given(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None and value not in ("", (), [])}


def _refused(answer: httpx2.Response) -> ApiError:
    try:
        return ApiError(schemas.Problem.model_validate_json(answer.content))
    except (ValidationError, json.JSONDecodeError):
        title = f"HTTP {answer.status_code} without a problem: is this a regroup server?"
        text = answer.text[:200]
        return ApiError(
            schemas.Problem(type="about:blank", title=title, status=answer.status_code, detail=text, code="unknown")
        )
