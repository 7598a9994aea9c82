"""Connections with limits on a real socket: half-open requests, bodies that do not arrive, clients that do not read."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from regroup.api.app import create_app
from regroup.api.web.connections import connection_class
from regroup.service.domain.author import Author
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind
from regroup.service.domain.limits import Limit
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.assembly.services import Services
from regroup.service.settings import Settings
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.store.rows.identity_rows import IdentityRow, TokenRow
from regroup.service.tasks.server_tasks import ServerTasks
from tests.support.doubles.fake_cluster import FakeCluster
from tests.support.inputs.senders import OWNER
from tests.support.servers.stores import open_store

TOKEN = "token-of-these-connections"
HEADER_S, BODY_S, WRITE_S = 1.0, 0.3, 0.5
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Serving:
    port: int
    server: uvicorn.Server
    services: Services


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    settings = Settings(
        state_dir=tmp_path, header_timeout_s=HEADER_S, body_timeout_s=BODY_S, write_timeout_s=WRITE_S,
        streams_per_identity=3, max_streams=4,
    )  # fmt: skip
    store = await open_store(settings.database_url)
    services = Services(store, FakeCluster(), settings)
    config = uvicorn.Config(
        create_app(services, ApiToken(TOKEN, tmp_path / "token")),
        port=0, ws="none", log_config=None, http=connection_class(settings),
        timeout_keep_alive=1, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = _Server(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if server.started:
                break
            await asyncio.sleep(0.01)
    yield Serving(server.servers[0].sockets[0].getsockname()[1], server, services)
    server.should_exit = True
    await running
    await store.close()


async def exchange(port: int, *parts: bytes, pause_s: float = 0.0) -> tuple[bytes, float]:
    """Send parts; return everything until the server closes the connection, and the seconds until then."""
    began_s = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(_PATIENCE_S):
            answer = await reader.read()
    except ConnectionError:
        answer = b""
    took_s = time.monotonic() - began_s
    sending.cancel()
    writer.close()
    return answer, took_s


HOST = b"Host: localhost\r\n"
HEAD = HOST + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /livez HTTP/1.1\r\n", b"GET /livez HTTP/1.1\r\nHost: local"])
async def test_a_half_open_request_is_closed(serving: Serving, sent: bytes) -> None:
    answer, took_s = await exchange(serving.port, sent)
    assert answer.startswith(b"HTTP/1.1 408 ") and took_s >= HEADER_S


async def test_bytes_that_trickle_do_not_extend_the_time(serving: Serving) -> None:
    slow = [b"GET /livez HTTP/1.1\r\n", *(b"x-%d: 1\r\n" % number for number in range(400))]
    answer, took_s = await exchange(serving.port, *slow, pause_s=0.05)
    # A reset by bytes that were still on their way may discard the answer.
    assert answer[:13] in (b"HTTP/1.1 408 ", b"") and took_s < 400 * 0.05 / 2


async def test_a_half_request_after_a_whole_one_is_closed(serving: Serving) -> None:
    whole = b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n"
    answer, _ = await exchange(serving.port, whole, b"GET /li", pause_s=0.1)
    assert answer.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in answer


async def test_an_idle_connection_is_closed(serving: Serving) -> None:
    answer, _ = await exchange(serving.port, b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("path", [b"/v1/jobs", b"/v1/uploads", b"/v1/plans", b"/v1/spec/validate"])
async def test_a_body_that_does_not_arrive_is_refused(serving: Serving, path: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    answer, took_s = await exchange(serving.port, head)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in answer and took_s >= BODY_S


async def test_many_half_open_requests_do_not_delay_others(serving: Serving) -> None:
    halves = [asyncio.create_task(exchange(serving.port, b"GET / HT")) for _ in range(200)]
    answer, _ = await exchange(serving.port, b"GET /livez HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    for text, _ in await asyncio.gather(*halves):
        assert text.startswith(b"HTTP/1.1 408 ")
    assert not serving.server.server_state.connections


async def test_a_client_that_does_not_read_is_disconnected(serving: Serving) -> None:
    job = await serving.services.submissions.submit(_spec("big"), OWNER)
    for number in range(600):
        data = {"text": "y" * 30_000, "n": number}
        await serving.services.store.note(job.job.id, "note", data, now=1.0, author=Author("u"))
    _, writer = await asyncio.open_connection("127.0.0.1", serving.port, limit=1)
    writer.write(b"GET /v1/jobs/big/events?follow=true HTTP/1.1\r\n" + HEAD + b"\r\n")
    await writer.drain()
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            await asyncio.sleep(0.05)
            if serving.services.followers._events:
                break
        while True:  # the request, and the follower with it, ends shortly after its connection
            await asyncio.sleep(0.05)
            if not serving.server.server_state.connections and not serving.services.followers._events:
                break
    writer.close()


def _spec(name: str) -> JobSpec:
    return parse_spec({"name": name, "workload": {"kind": "script", "entrypoint": "/a.py"}})


async def test_streams_of_a_client_and_of_all_clients_are_limited(serving: Serving) -> None:
    await serving.services.submissions.submit(_spec("gpt"), OWNER)
    follow = b"GET /v1/jobs/gpt/%s?follow=%s HTTP/1.1\r\n" + HEAD
    open_streams = [await _open(serving.port, follow % (b"events", b"true") + b"\r\n") for _ in range(3)]
    answer, _ = await exchange(serving.port, follow % (b"steps", b"1") + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 429 ") and b"too_many_streams" in answer and b"for one identity" in answer
    basic = b"Authorization: Basic " + base64.b64encode(f"other:{TOKEN}".encode()) + b"\r\n"
    again = b"GET /v1/jobs/gpt/events?follow=yes HTTP/1.1\r\n" + HOST + basic + b"Connection: close\r\n\r\n"
    assert b"for one identity" in (await exchange(serving.port, again))[0], "the limit is that of all its tokens"
    token = generate_token()
    identities = serving.services.store.identities
    await identities.create_identity(IdentityRow("ana", IdentityKind.USER, None, True, 0.0, "user"))
    await identities.create_token(TokenRow(token.id, "ana", "", token.digest, None, None, 0.0, "user"))
    bearer = b"Authorization: Bearer " + token.value.encode() + b"\r\n"
    other = b"GET /v1/jobs/gpt/events?follow=yes HTTP/1.1\r\n" + HOST + bearer
    open_streams.append(await _open(serving.port, other + b"\r\n"))
    answer, _ = await exchange(serving.port, other + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 429 ") and b"the server's clients" in answer
    for writer in open_streams:
        writer.close()
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if not serving.services.followers._events:
                break
            await asyncio.sleep(0.05)
    (await _open(serving.port, follow % (b"events", b"true") + b"\r\n")).close()
    assert serving.services.refusals == {Limit.STREAMS: 3}


async def _open(port: int, request: bytes) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), _PATIENCE_S)
    assert line.startswith(b"HTTP/1.1 200 "), line
    return writer


async def test_liveness_fails_after_repeated_failures_of_a_task(serving: Serving) -> None:
    tasks = serving.services.tasks
    assert isinstance(tasks, ServerTasks)
    request = b"GET /livez HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n"
    answer, _ = await exchange(serving.port, request)
    assert answer.startswith(b"HTTP/1.1 200 ")
    tasks.passes.lead()
    for _ in range(5):
        tasks.passes.fail("fault", "OverflowError: int too large to convert to float")
    answer, _ = await exchange(serving.port, request)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"OverflowError: int too large" in answer
    tasks.passes.complete()
    answer, _ = await exchange(serving.port, request)
    assert answer.startswith(b"HTTP/1.1 200 ")
