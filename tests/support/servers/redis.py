"""A Redis of the test session, for Ray heads whose records must outlive them."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.servers.ports import free_port


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Loopback port of a running Redis. Mark the test `redis`, so that it skips on machines without one."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis: no redis-server (apt-get install redis-server)")
    port, log = free_port(), tmp_path_factory.mktemp("redis") / "log"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with log.open("wb") as output:
        server = subprocess.Popen([*command, "--dir", str(log.parent)], stdout=output, stderr=output)
    try:
        _wait(port, server)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=20)


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                if line.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail("the Redis server did not start")
        time.sleep(0.05)
