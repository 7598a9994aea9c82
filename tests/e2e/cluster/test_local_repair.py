"""A local Ray cluster heals itself: lost nodes start again, and a lost head does. The account shows what it cost."""

import os
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.service.local import leftovers, processes, ray_cluster
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.slow
RESTARTS = {"REGROUP_RESTART_LOCAL_NODES": "true", "REGROUP_QUARANTINE_S": "0"}
HELPER = b"dashboard/agent.py"


@pytest.fixture
def healing(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "state", environment=RESTARTS)
    server.start()
    yield server
    server.down()


def record(server: Server) -> ray_cluster.LocalRay:
    cluster = ray_cluster.load(server.state)
    assert cluster is not None
    return cluster


def state_of(server: Server, job_id: str) -> str:
    try:
        return server.client.get(job_id).state
    except (ApiError, ServerUnreachableError, OSError):
        return ""


def is_ready(server: Server) -> bool:
    try:
        server.get("/readyz")
    except urllib.error.HTTPError:
        return False
    return True


def test_a_node_that_lost_an_agent_of_ray_returns_and_the_job_continues(
    healing: Server, spec: Spec, tmp_path: Path
) -> None:
    (tmp_path / "gates").mkdir()
    gates = Gates(tmp_path / "gates", 12)
    job = healing.client.submit(spec("helper-lost", **gates.parts))
    eventually(lambda: [saved for saved in healing.client.checkpoints(job.id) if saved.step == 8], 120)
    before = record(healing)
    helpers = [
        process
        for process in processes.with_descendants([before.raylets["local-2"]])
        if any(HELPER in word for word in processes.command_line(process))
    ]
    assert helpers, "a raylet has an agent of the dashboard"
    processes.send(helpers, signal.SIGKILL)
    eventually(lambda: not before.raylets["local-2"].is_alive, 60)
    gates.open(12)
    healing.client.wait(job.id, timeout_s=240)
    done = healing.client.get(job.id)
    assert done.state == "SUCCEEDED", done.message
    assert [incident.reason for incident in done.incidents] == ["agent_lost"]
    after = record(healing)
    assert after.id == before.id and after.lost_nodes == []
    assert after.raylets["local-2"] != before.raylets["local-2"]
    names = sorted(node.name for node in healing.client.nodes() if node.name.startswith("local-"))
    assert names == ["local-1", "local-2"]
    assert 'regroup_local_node_starts_total{outcome="succeeded"} 1.0' in healing.get("/metrics")


def test_a_lost_head_is_replaced_and_every_second_and_step_is_accounted_for(
    healing: Server, spec: Spec, tmp_path: Path
) -> None:
    (tmp_path / "gates").mkdir()
    gates = Gates(tmp_path / "gates", 14)
    job = healing.client.submit(spec("head-lost", **gates.parts))
    eventually(lambda: [saved for saved in healing.client.checkpoints(job.id) if saved.step == 8], 120)
    eventually(lambda: healing.client.get(job.id).step == 13, 60)
    before, pid = record(healing), healing.pid
    (gcs,) = [process for process in before.daemons if process.name == "gcs_server"]
    os.kill(gcs.pid, signal.SIGKILL)
    eventually(lambda: record(healing).id != before.id, 60)
    gates.open(14)
    eventually(lambda: state_of(healing, job.id) == "SUCCEEDED", 240)
    assert healing.pid == pid and processes.find_process(pid) is not None, "the server keeps its process id"
    done, why = healing.client.get(job.id), healing.client.why(job.id)
    (incident,) = done.incidents
    assert (incident.reason, incident.at_step, incident.steps_lost) == ("cluster_lost", 13, 5)
    assert why.seconds["recompute"] > 0 and why.seconds["detecting"] > 0
    assert sum(why.seconds.values()) == pytest.approx(done.finished_at - done.created_at, abs=0.5)
    assert why.steps_lost == {"cluster_lost": 5}


def test_a_server_whose_ray_is_gone_ends_on_sigterm(tmp_path: Path) -> None:
    server = Server(tmp_path / "state", nodes=1)
    server.start()
    try:
        (gcs,) = [process for process in record(server).daemons if process.name == "gcs_server"]
        os.kill(gcs.pid, signal.SIGKILL)
        eventually(lambda: not is_ready(server), 90)
        begin_s = time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(20) == 0
        assert time.monotonic() - begin_s < 15
    finally:
        server.down()


def test_down_during_a_job_leaves_no_scratch_folder(spec: Spec, tmp_path: Path) -> None:
    server = Server(tmp_path / "state")
    server.start()
    try:
        job = server.client.submit(spec("interrupted", steps=100_000))
        eventually(lambda: server.client.get(job.id).step > 2, 120)
        assert leftovers.find_leftovers([job.id]), "the job has a scratch folder while it runs"
    finally:
        server.down()
    assert leftovers.find_leftovers([job.id]) == []
