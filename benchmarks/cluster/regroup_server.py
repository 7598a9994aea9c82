"""A private `regroup serve` for a benchmark: two local nodes and a temporary state folder.

On exit, all processes that it started are ended.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.peers.workload import NODES, SLOTS
from benchmarks.trials.trial import TrialError
from regroup.api.client.client import Client
from regroup.service.domain.errors import RegroupError
from regroup.service.local import api_token

_MARK = "BENCHMARK_SERVER"
_START_PATIENCE_S = 90.0
_JOB_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Server:
    """A running server."""

    client: Client
    mark: str
    process: int
    """Process id of the server itself."""

    def processes(self) -> set[int]:
        """Return the process ids of the server, of its Ray cluster, and of all that runs on it."""
        return processes.marked(_MARK, self.mark)

    def finish(self, job_id: str) -> dict[str, Any]:
        """Wait until the job has ended and return the job as the API shows it.

        Raises:
            TrialError: the job failed, was cancelled, or did not end in time.
        """
        try:
            job = self.client.wait(job_id, timeout_s=_JOB_PATIENCE_S).model_dump(mode="json")
        except RegroupError as error:
            raise TrialError(f"regroup: {error}") from error
        if job["state"] != "SUCCEEDED":
            raise TrialError(f"regroup: job ended {job['state']} with reason {job['reason']}: {job['message']}")
        return job

    def steps(self, job_id: str) -> list[dict[str, Any]]:
        """Return the committed steps in order, without the earlier run of a step that a later generation repeated."""
        return [row.model_dump(mode="json") for row in self.client.steps(job_id)]


@contextmanager
def run_server(
    folder: Path, environment: Mapping[str, str] | None = None, *, nodes: int = NODES, slots: int = SLOTS
) -> Generator[Server]:
    """Run a server with a state folder inside `folder`.

    Jobs may inject faults. `environment` holds settings of the server, REGROUP_*.
    """
    state = folder / "state"
    state.mkdir(parents=True)
    inherited = {name: value for name, value in os.environ.items() if name not in api_token.VARIABLES}
    env = {**inherited, "REGROUP_RAY_DASHBOARD_PORT": "0", **(environment or {}), _MARK: str(state)}
    command = [sys.executable, "-m", "regroup.api.cli"]
    options = ["--local-nodes", str(nodes), "--slots-per-node", str(slots), "--port", "0", "--allow-faults"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "serve", "--state-dir", str(state), *options],
            env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        url = _url(server, state, folder / "server.log")
        with Client(url, token=api_token.own_token(state)) as client:
            yield Server(client, str(state), server.pid)
    finally:
        server.terminate()
        down = [*command, "down", "--state-dir", str(state)]
        with suppress(subprocess.TimeoutExpired):  # the rest is ended below
            subprocess.run(down, env=env, capture_output=True, check=False, timeout=60)
        processes.end(processes.marked(_MARK, str(state)))
        server.wait(30)


def _url(server: "subprocess.Popen[bytes]", state: Path, log: Path) -> str:
    deadline = time.monotonic() + _START_PATIENCE_S
    while not (state / "server.json").exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise TrialError(f"regroup: the server did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return str(json.loads((state / "server.json").read_text())["url"])
