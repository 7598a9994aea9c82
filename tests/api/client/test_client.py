"""The Python client with the real app, and with a network that fails."""

import json
import pickle
import subprocess
import sys

import httpx2
import pytest

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError, ServerUnreachableError, WaitTimeoutError
from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec


async def test_a_job_from_submit_to_end(live, make_spec, job_events):
    job = await live.client(lambda client: client.submit(make_spec()))
    await live.run(job.id)
    await live.report(job.id, job_events.step(1, 2), job_events.state("SUCCEEDED", "completed"))
    live.cluster.logs[job.id, 1, 0, "stdout"] = "hello\n"

    def call_client(client):
        return {
            "wait": client.wait("gpt", timeout_s=5).state,
            "events": [event.type for event in client.events(job.id)],
            "followed": [event.type for event in client.events(job.id, follow=True)],
            "steps": [row.step for row in client.steps(job.id)],
            "rows": [row.number for row in client.steps(job.id, follow=True, after=1)],
            "logs": "".join(client.logs(job.id)),
            "log": "".join(client.logs(job.id, follow=True)),
            "ledger": client.ledger(job.id).exact,
            "why": client.why(job.id).state,
            "generations": len(client.generations(job.id)),
            "rest": (
                client.incidents(job.id),
                client.checkpoints(job.id),
                client.version().api,
                client.health().status,
            ),
        }

    response = await live.client(call_client)
    assert (
        response.pop("events")
        == response.pop("followed")
        == ["state", "state", "state", "generation", "state", "state"]
    )
    assert response == {
        "wait": "SUCCEEDED", "steps": [1, 2], "rows": [2], "logs": "hello\n", "log": "hello\n", "ledger": True,
        "why": "SUCCEEDED", "generations": 1, "rest": ([], [], "v1", "ok"),
    }  # fmt: skip


async def test_a_listing_reads_all_pages(live, monkeypatch):
    ids = [(await live.submit(name=f"job-{number}"))["id"] for number in range(55)]
    assert await live.client(lambda client: [job.id for job in client.jobs(state=["QUEUED"])]) == ids[::-1]
    assert await live.client(lambda client: [job.id for job in client.jobs(name="job-7")]) == [ids[7]]


async def test_an_empty_text_is_refused_and_not_left_out(live):
    await live.submit()

    def call_client(client):
        for call in (
            lambda: list(client.jobs(name="")),
            lambda: list(client.jobs(project="")),
            lambda: client.get("gpt", project=""),
            lambda: list(client.events("gpt", project="")),
            lambda: list(client.audit(actor="")),
        ):
            with pytest.raises(ApiError) as refused:
                call()
            assert refused.value.problem.status == 422

    await live.client(call_client)


async def test_errors_contain_the_problem(live, make_spec):
    def call_client(client):
        with pytest.raises(ApiError) as refused:
            client.submit(make_spec(colour="red"))
        with pytest.raises(WaitTimeoutError):
            client.wait(client.submit(parse_spec(make_spec())).id, timeout_s=0)
        return refused.value

    error = await live.client(call_client)
    assert (error.problem.status, error.problem.errors[0].pointer) == (422, "/colour")
    assert "/colour" in str(error) and str(pickle.loads(pickle.dumps(error))) == str(error)


def answering(*answers):
    """Return a transport that gives these answers in order, and the list of requests that it received."""
    seen: list[httpx2.Request] = []
    left = list(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx2.MockTransport(handle), seen


def test_a_repeated_submission_has_the_same_key():
    version = {"version": "1", "api": "v1"}
    problem = {"type": "urn:x", "title": "t", "status": 409, "detail": "d", "code": "conflict"}
    transport, seen = answering(
        httpx2.ConnectError("refused"),
        httpx2.Response(503),
        httpx2.ReadError("cut"),
        httpx2.Response(409, json=problem),
        httpx2.Response(200, json=version),
    )
    with Client(transport=transport) as client:
        with pytest.raises(ApiError, match="t: d"):
            client.submit({"name": "gpt"})
        assert len({request.headers["Idempotency-Key"] for request in seen}) == 1
        assert len(seen) == 4
        assert client.version().api == "v1"


def test_patience_ends():
    transport, _ = answering(*[httpx2.ConnectError("refused")] * 50)
    with Client(transport=transport, patience_s=0.3) as client, pytest.raises(ServerUnreachableError, match="refused"):
        client.get("gpt")


def test_an_interrupted_stream_resumes_after_the_last_id():
    def event(number: int) -> str:
        body = {"job_id": "j", "number": number, "type": "note", "time_s": 1, "generation": 1, "actor": "a", "data": {}}
        return f"event: event\ndata: {json.dumps(body)}\nid: {number}\n\n"

    transport, seen = answering(
        httpx2.Response(200, text=event(1) + event(2)), httpx2.ConnectError("refused"),
        httpx2.Response(200, text=event(3) + "event: end\ndata: {}\n\n"),
    )  # fmt: skip
    with Client(transport=transport) as client:
        assert [response.number for response in client.events("j", follow=True)] == [1, 2, 3]
    assert [request.headers["Last-Event-ID"] for request in seen] == ["0", "2", "2"]


def test_an_error_names_an_answer_of_another_server():
    transport, _ = answering(httpx2.Response(404, text="<html>"))
    with Client(transport=transport) as client, pytest.raises(ApiError, match="is this a regroup server"):
        client.get("gpt")


def test_the_client_imports_neither_torch_nor_ray():
    heavy = ("torch", "ray", "sqlalchemy", "fastapi")
    code = f"import regroup.api.client.client, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("args", {"a": [1, float("nan")]}, "args.a.1: nan is not a finite number"),
        ("args", {"a": float("inf")}, "args.a: inf is not a finite number"),
        ("args", {"a": object()}, "args.a: object is not plain data"),
        ("seed", 2**80, "seed: an integer must be between"),
        ("labels", {1: "a"}, "labels: keys must be text"),
    ],
)
def test_a_body_that_json_cannot_represent_is_refused_by_field(make_spec, field, value, message):
    with Client("http://127.0.0.1:9") as client, pytest.raises(SpecError) as refused:
        client.submit(make_spec(**{field: value}))
    assert message in str(refused.value)
