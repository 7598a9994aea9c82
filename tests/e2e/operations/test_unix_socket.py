"""A server on a Unix socket, as a process: commands find it, jobs run, and other users cannot connect."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.api.client.client import Client
from tests.support.servers.regroup_server import Server

pytestmark = pytest.mark.slow
_NOBODY = 65534
_CONNECT = """
import os, socket, sys
if user := int(sys.argv[2]):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
print("connected")
"""


class SocketServer(Server):
    """A server that listens on no port."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "api.sock"
        super().__init__(folder / "state", nodes=1, arguments=["--unix-socket", str(self.path)])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketServer]:
    server = SocketServer(tmp_path_factory.mktemp("socket"))
    server.start()
    yield server
    server.down()


def cli(server: SocketServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REGROUP_STATE_DIR": str(server.state)}
    command = [sys.executable, "-m", "regroup.api.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_commands_find_the_socket_and_a_job_runs(served: SocketServer, tmp_path: Path) -> None:
    assert served.url == f"unix:{served.path}"
    script = tmp_path / "hello.py"
    script.write_text("print('hello from a rank')\n")
    done = cli(served, "run", "--nproc-per-node", "1", str(script))
    assert done.returncode == 0 and "hello from a rank" in done.stdout, done.stderr
    listed = cli(served, "jobs", "--server", f"unix:{served.path}")
    assert listed.returncode == 0 and "SUCCEEDED" in listed.stdout, listed.stderr
    with Client(f"unix:{served.path}") as client:
        assert [job.state for job in client.jobs()] == ["SUCCEEDED"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_cannot_connect(served: SocketServer) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) & 0o077 == 0
    for folder in served.path.parents:  # so that only the socket's own mode decides
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    refused, mine = (
        subprocess.run(
            [sys.executable, "-c", _CONNECT, str(served.path), str(user)],
            capture_output=True, text=True, timeout=60, check=False,
        )
        for user in (_NOBODY, 0)
    )  # fmt: skip
    assert refused.returncode != 0 and "PermissionError" in refused.stderr, refused.stderr
    assert mine.stdout == "connected\n"


def test_a_second_server_does_not_take_the_socket(served: SocketServer, tmp_path: Path) -> None:
    words = ["serve", "--state-dir", str(tmp_path / "other"), "--unix-socket", str(served.path)]
    refused = subprocess.run(
        [sys.executable, "-m", "regroup.api.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode != 0 and "another server listens on" in refused.stderr, refused.stderr
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(served.path))
