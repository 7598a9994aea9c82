"""A server without Ray, and a gateway next to the cluster: jobs recover, and a gateway that dies costs no step."""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os.proc_environ import variables
from tests.support.jobs.step_gates import Gates
from tests.support.servers.gateway_process import Gateway
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
RANKS = {0, 1, 2, 3}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    folder = Path(tempfile.mkdtemp(prefix="rgt-", dir="/tmp"))
    found = Gateway(folder)
    found.start()
    yield found
    found.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def remote(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that reaches Ray through the gateway only."""
    files = {
        "REGROUP_GATEWAY_TOKEN_FILE": str(gateway.token),
        "REGROUP_GATEWAY_CA_FILE": str(gateway.files.certificate),
    }
    arguments = ["--gateway-url", gateway.url]
    server = Server(tmp_path_factory.mktemp("remote") / "state", environment=files, arguments=arguments)
    server.start()
    yield server
    server.down()


def test_a_job_recovers_and_its_output_and_commands_pass_the_gateway(
    remote: Server, spec: Spec, tmp_path: Path
) -> None:
    undisturbed = remote.run(spec("undisturbed"))
    gates = Gates(tmp_path, 18)
    faults = [{"at": {"rank": 1, "step": 12, "phase": "backward"}, "do": "sigkill"}]
    job = remote.client.submit(spec("struck", faults=faults, **gates.parts))
    eventually(lambda: gates.ranks_at(18, generation=2).keys() == RANKS, 120)
    command = [sys.executable, "-m", "regroup.api.cli", "exec", job.id, "--", "sh", "-c", "echo in the rank; exit 7"]
    environment = {**os.environ, "REGROUP_STATE_DIR": str(remote.state)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stdout) == (7, "in the rank\n"), done.stderr
    assert {stack.rank for stack in remote.client.stacks(job.id)} == RANKS
    gates.open(18)
    ended = remote.client.wait(job.id, timeout_s=240)
    assert_same_result(remote, ended, undisturbed)
    assert [incident.reason for incident in ended.incidents] == ["rank_exit"]


def test_a_gateway_that_is_killed_costs_no_step(gateway: Gateway, remote: Server, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 6, 18)
    job = remote.client.submit(spec("cut-off", **gates.parts))
    eventually(lambda: gates.ranks_at(6).keys() == RANKS, 120)
    gateway.kill()
    gates.open(6)
    eventually(lambda: gates.ranks_at(18).keys() == RANKS)  # the job trains without a gateway
    eventually(lambda: _is_reported(remote))
    assert remote.client.get(job.id).state == "RUNNING"
    gateway.start()
    gates.open(18)
    done = remote.client.wait(job.id, timeout_s=240)
    assert (done.state, done.generation, done.incidents) == ("SUCCEEDED", 1, [])
    ledger = remote.client.ledger(job.id)
    assert ledger.exact and ledger.steps == done.step, ledger.problems


def test_the_server_has_neither_ray_nor_its_token(gateway: Gateway, remote: Server) -> None:
    assert "_raylet" not in Path(f"/proc/{remote.pid}/maps").read_text()
    assert not any(each.startswith(b"RAY_AUTH") for each in variables(remote.pid))
    assert gateway.terminate() == 0, "a signal ends it in good order"
    gateway.start()


def _is_reported(remote: Server) -> bool:
    """Return True if the server reports that the gateway does not answer."""
    try:
        remote.get("/readyz?verbose=true")
    except urllib.error.HTTPError as error:
        return "the gateway" in error.read().decode()
    return False
