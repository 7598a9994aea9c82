"""Servers that run many jobs: with a cluster in memory, or with a local Ray. Both can be killed and restarted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

from regroup.api.chaos.server_process import LocalService
from regroup.api.client.client import Client
from regroup.service.local.api_token import VARIABLES, own_token
from regroup.service.server import control_plane
from tests.support.servers.ports import free_port

_START_S = 60.0
_STOP_S = 20.0
_PATIENCE_S = 120.0
"""Retry time of clients while the server restarts."""


class Service(Protocol):
    """A server of this machine."""

    state_dir: Path
    url: str

    @property
    def pid(self) -> int: ...

    def client(self) -> Client: ...

    def restart(self) -> None: ...


class ScriptedService(AbstractContextManager["ScriptedService"]):
    """The server of `scripted_server.py`."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.state_dir, self._port = folder / "state", free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = folder / "server.log"
        own = {name: value for name, value in os.environ.items() if name not in VARIABLES}  # a token of its own
        self._environment = {**own, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.state_dir.mkdir(parents=True)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def client(self) -> Client:
        """Return a client that waits for a server that is restarting."""
        return Client(self.url, token=own_token(self.state_dir), patience_s=_PATIENCE_S)

    def restart(self) -> None:
        """Kill the server, and start it again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_STOP_S)
        self._start()

    def _start(self) -> None:
        record = self.state_dir / "server.json"
        record.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.support.many_jobs.scripted_server", str(self.state_dir)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment
            )
        _wait_for(record, self._process, self._log)


class RayService(LocalService):
    """A server with a local Ray of two nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, nodes=2)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        record = control_plane.read_record(self.state_dir)
        assert record is not None
        return record.pid

    def restart(self) -> None:
        """Kill the server, and start it again. Ray and the jobs continue."""
        os.kill(self.pid, signal.SIGKILL)
        super().restart()


def _wait_for(record: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_S
    while not record.exists():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
