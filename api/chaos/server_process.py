"""A dedicated `regroup serve` on this machine: start, restart, and stop it with all its processes."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.client.client import Client
from regroup.service.domain.errors import UnavailableError
from regroup.service.local import marked_processes, ray_cluster
from regroup.service.local.api_token import own_token
from regroup.service.settings import Settings

_START_TIMEOUT_S = 120.0
_DOWN_TIMEOUT_S = 90.0
_EXIT_TIMEOUT_S = 10.0
_FAULT_SETTINGS = {
    "REGROUP_ALLOW_FAULTS": "true",
    "REGROUP_QUARANTINE_S": "0",
    "REGROUP_RESTART_LOCAL_NODES": "false",
}
"""Settings of the server and of `regroup down`. Injected faults must not quarantine the nodes. A local node stands for
a machine: when it is lost, it does not return."""
_CLIENT_PATIENCE_S = 60.0
"""Retry time of clients: a killed server needs some seconds to restart."""


class LocalService:
    """A context manager. At its end, all processes that it started have exited."""

    def __init__(
        self, folder: Path, *, nodes: int, slots: int = 2, environment: Mapping[str, str] | None = None
    ) -> None:
        """Serve from `folder`/state, with the settings (REGROUP_*) in `environment`."""
        self.state_dir = folder / "state"
        self.slots = slots
        self.faults = LocalFaults(self.state_dir)
        self.killed: Mapping[int, str] = {}
        """Processes that had to be killed at the end: pid → command."""
        self._nodes, self._log = nodes, folder / "server.log"
        self._environment = {
            **marked_processes.marked_environment(self.state_dir),
            **_FAULT_SETTINGS,
            **(environment or {}),
        }
        self._port = _free_port()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.state_dir.mkdir(parents=True)
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self) -> None:
        """Start the server, always on the same port so that clients can continue.

        Raises:
            UnavailableError: the server exited, or did not start in time. The error contains the end of its log.
        """
        record = self.state_dir / "server.json"
        record.unlink(missing_ok=True)
        options = ["--local-nodes", str(self._nodes), "--slots-per-node", str(self.slots), "--port", str(self._port)]
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                self._command("serve", *options),
                env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not record.exists():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise UnavailableError(f"the server did not start:\n{self.log()[-2000:]}")
            time.sleep(0.05)
        self.url = str(json.loads(record.read_text())["url"])

    def client(self) -> Client:
        """Return a client that waits for a server that is restarting."""
        return Client(self.url, token=own_token(self.state_dir), patience_s=_CLIENT_PATIENCE_S)

    def restart(self) -> None:
        """Start the server again after it was killed."""
        if self._server is not None:
            self._server.wait(_EXIT_TIMEOUT_S)
        self.start()

    def add_node(self) -> str:
        """Start a replacement for a lost node, and return its name."""
        given: dict[str, Any] = {"local_nodes": self._nodes, "slots_per_node": self.slots}
        return ray_cluster.add_node(Settings(state_dir=self.state_dir, **given))

    def log(self) -> str:
        """Return the output of the server."""
        return self._log.read_text(errors="replace")

    def _end(self) -> None:
        if self._server is not None:
            self._server.terminate()
        with self._log.open("ab") as log:
            down = self._command("down")
            subprocess.run(
                down, env=self._environment, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=_DOWN_TIMEOUT_S
            )
        self.killed = marked_processes.stop_marked(str(self.state_dir), timeout_s=_EXIT_TIMEOUT_S)
        if self._server is not None:
            self._server.wait(_EXIT_TIMEOUT_S)

    def _command(self, verb: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "regroup.api.cli", verb, "--state-dir", str(self.state_dir), *options]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
