"""A web server as a process: signals, open files and certificates."""

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

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
