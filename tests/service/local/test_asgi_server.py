"""A web server as a process: signals, open files and certificates."""

import asyncio
import http.client
import os
import resource
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from regroup.service.domain.errors import ConflictError
from regroup.service.local import asgi_server
from tests.support.inputs.certificates import write_certificate


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_the_server_and_bounds_its_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(asgi_server, "end_within", limits.append)
    stopping = asyncio.Event()
    asgi_server.stop_on_signals(stopping)
    try:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            await stopping.wait()
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(each)
    assert limits == [asgi_server.END_S], "a second signal changes nothing"


def _answer_times(port: int) -> list[float]:
    client, times = http.client.HTTPConnection("127.0.0.1", port), list[float]()
    for _ in range(60):  # a kernel acknowledges the first packets of a connection at once
        began_s = time.perf_counter()
        client.request("GET", "/")
        assert client.getresponse().read() == b"ok"
        times.append(time.perf_counter() - began_s)
    client.close()
    return times


async def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """Nagle's algorithm holds the second part of an answer until the client acknowledges the first, 40 ms later."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    listener = socket.socket(socket.AF_INET)
    listener.bind(("127.0.0.1", 0))
    server = asgi_server.AsgiServer(uvicorn.Config(app, http="h11", lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.up.wait()
    times = await asyncio.to_thread(_answer_times, listener.getsockname()[1])
    server.should_exit = True
    await serving
    assert min(times[30:]) < 0.03


def test_the_limit_of_open_files_is_raised_within_that_of_the_user() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        asgi_server.allow_descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft > 256 and hard == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    files = write_certificate(tmp_path)
    assert asgi_server.load_certificate(files.certificate, files.key).minimum_version.name == "TLSv1_2"
    files.key.write_text("no key")
    with pytest.raises(ConflictError, match="cannot be used"):
        asgi_server.load_certificate(files.certificate, files.key)
