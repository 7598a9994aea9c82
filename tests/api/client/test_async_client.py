"""The asyncio client with the real app, and its agreement with the blocking client."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError, ServerUnreachableError, WaitTimeoutError
from regroup.api.schemas.exec import ExecExit, ExecOutput, ExecStarted
from regroup.service.domain.author import Author
from regroup.service.domain.layout import Layout
from regroup.service.domain.states import JobState

ELASTIC = {"dp": {"min": 1, "target": 1, "max": 4}}
T = TypeVar("T")


def public_methods(client: type) -> dict[str, Callable[..., Any]]:
    members = {name: each for kind in client.__mro__[:-1] for name, each in vars(kind).items()}
    return {name: method for name, method in members.items() if not name.startswith("_") and callable(method)}


async def collect(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


def test_both_clients_have_the_same_methods_and_signatures() -> None:
    blocking, asynchronous = public_methods(Client), public_methods(AsyncClient)
    assert list(blocking) == list(asynchronous)
    for name, method in blocking.items():
        expected, actual = inspect.signature(method), inspect.signature(asynchronous[name])
        assert list(expected.parameters.values()) == list(actual.parameters.values()), name
        returned = str(expected.return_annotation).replace("abc.Iterator", "abc.AsyncIterator")
        assert str(actual.return_annotation) == returned, name
        assert method.__doc__ == asynchronous[name].__doc__, name
        is_awaited = "AsyncIterator" not in returned and name != "under"  # `under` sends no request
        assert inspect.iscoroutinefunction(asynchronous[name]) is is_awaited, name


async def test_a_job_is_submitted_watched_resized_and_cancelled(live: Any, make_spec: Any, job_events: Any) -> None:
    async with AsyncClient(live.url, patience_s=5.0) as client:
        job = await client.submit(make_spec(layout=ELASTIC))
        await live.run(job.id)
        assert [found.id for found in await collect(client.jobs(state=["RUNNING"]))] == [job.id]
        watching = asyncio.create_task(collect(client.events(job.id, follow=True)))

        resized = await client.resize(job.id, 2)
        assert resized.intents["resize"]["layout"]["dp_shard"] == 2
        with pytest.raises(WaitTimeoutError, match="the resize is in progress"):
            await client.wait_for_resize(job.id, timeout_s=0)
        waiting = asyncio.create_task(client.wait_for_resize(job.id, timeout_s=10))
        layout = {**Layout(dp_shard=2).to_json(), "dp_replicate": 1, "cp": 1, "tp": 1, "pp": 1}
        formed = {"number": 2, "layout": layout, "world_size": 2, "ranks": [], "start_step": 1, "restore": {}}
        await live.report(job.id, ("generation", 2, formed))
        author = Author("test")
        await live.store.intend(job.id, lambda _: {"resize": None}, now=9.0, author=author, action="jobs.resize")
        assert await waiting == Layout(dp_shard=2)

        assert "cancel" in (await client.cancel(job.id)).intents
        for name in ("DRAINING", "CANCELLED"):
            await live.report(job.id, ("state", 2, job_events.state(name, "cancelled_by_user")[2]))
        assert (await client.wait(job.id, timeout_s=5)).state is JobState.CANCELLED
        events = await asyncio.wait_for(watching, 10)
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert {"state", "generation"} <= {event.type for event in events}


async def test_steps_and_logs_are_followed_to_the_end(live: Any, make_spec: Any, job_events: Any) -> None:
    async with AsyncClient(live.url, patience_s=5.0) as client:
        job = await client.submit(make_spec())
        await live.run(job.id)
        live.cluster.logs[job.id, 1, 0, "stdout"] = "hello\n"
        await live.report(job.id, job_events.step(1, 2), job_events.state("SUCCEEDED", "completed"))
        assert [row.step for row in await collect(client.steps(job.id))] == [1, 2]
        assert [row.number for row in await collect(client.steps(job.id, follow=True, after=1))] == [2]
        assert await collect(client.logs(job.id)) == ["hello\n"]
        assert "".join(await collect(client.logs(job.id, follow=True))) == "hello\n"


async def test_a_command_ends_when_its_iterator_is_closed(live: Any, make_spec: Any) -> None:
    async with AsyncClient(live.url, patience_s=5.0) as client:
        job = await client.submit(make_spec())
        await live.run(job.id)
        live.cluster.outputs = [("stdout", b"out"), {"code": 3, "why": "exited"}]
        started, output, end = await collect(client.exec(job.id, ["true"]))
        assert isinstance(started, ExecStarted) and isinstance(output, ExecOutput) and isinstance(end, ExecExit)
        assert (output.data, end.code) == (b"out", 3)

        live.cluster.outputs = [("stdout", b"x")]
        async with aclosing(client.exec(job.id, ["sleep", "100"])) as events:
            await anext(events)
        async with asyncio.timeout(10):
            while f"end execution {live.cluster.orders[-1]['key']}" not in live.cluster.calls:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_folder_of_code_is_uploaded_before_the_job(live: Any, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    seen: list[tuple[int, int]] = []
    async with AsyncClient(live.url, patience_s=5.0) as client:
        address = await client.upload_working_dir(folder, on_progress=lambda *bytes_: seen.append(bytes_))
    assert address.startswith("sha256:") and seen[-1][0] == seen[-1][1]


async def test_errors_contain_the_problem(live: Any, make_spec: Any) -> None:
    async with AsyncClient(live.url, patience_s=5.0) as client:
        with pytest.raises(ApiError) as refused:
            await client.submit(make_spec(colour="red"))
    assert (refused.value.problem.status, refused.value.problem.errors[0].pointer) == (422, "/colour")


async def test_a_repeated_submission_has_the_same_key_until_patience_ends() -> None:
    seen: list[httpx2.Request] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if len(seen) == 1:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(503)

    async with AsyncClient(transport=httpx2.MockTransport(refuse), patience_s=0.3) as client:
        with pytest.raises(ApiError, match="HTTP 503"):
            await client.submit({"name": "gpt"})
    assert len(seen) > 1 and len({request.headers["Idempotency-Key"] for request in seen}) == 1


async def test_a_stream_reconnects_after_the_last_event() -> None:
    def event(number: int) -> str:
        body = {"job_id": "j", "number": number, "type": "note", "time_s": 1, "generation": 1, "actor": "a", "data": {}}
        return f"event: event\ndata: {json.dumps(body)}\nid: {number}\n\n"

    responses = [
        httpx2.Response(200, text=event(1) + event(2)),
        httpx2.Response(503),
        httpx2.Response(200, text=event(3)),
    ]
    seen: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if not responses:
            raise httpx2.ConnectError("refused")
        return responses.pop(0)

    async with AsyncClient(transport=httpx2.MockTransport(respond), patience_s=0.5) as client:
        numbers: list[int] = []
        with pytest.raises(ServerUnreachableError, match="refused"):
            async for found in client.events("j", follow=True):
                numbers.append(found.number)
    assert numbers == [1, 2, 3]
    assert [request.headers["Last-Event-ID"] for request in seen][:4] == ["0", "2", "2", "3"]
