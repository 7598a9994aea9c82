"""A server of two Ray clusters: jobs recover where they belong, and a cluster that is cut off stops no other."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from tests.support.jobs.step_gates import Gates
from tests.support.servers.gateway_process import Gateway
from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
RANKS = {0, 1, 2, 3}
WEST = {"resources": {"cluster": "west"}}

pytestmark = pytest.mark.slow


@dataclass
class Clusters:
    """A server and the gateways of its clusters."""

    server: Server
    east: Gateway
    west: Gateway


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folders = {name: Path(tempfile.mkdtemp(prefix="rgt-", dir="/tmp")) for name in ("east", "west")}
    gateways = {name: Gateway(folder) for name, folder in folders.items()}
    file = tmp_path_factory.mktemp("clusters") / "clusters.json"
    entries = {
        name: {"gateway_url": each.url, "token_file": str(each.token), "ca_file": str(each.files.certificate)}
        for name, each in gateways.items()
    }
    file.write_text(json.dumps({"default": "east", "clusters": entries}))
    server = Server(file.parent / "state", arguments=["--clusters-file", str(file)])
    try:
        for each in gateways.values():
            each.start()
        server.start()
        yield Clusters(server, gateways["east"], gateways["west"])
    finally:
        server.down()
        for each in gateways.values():
            each.stop()
        for folder in folders.values():
            shutil.rmtree(folder)


def test_each_job_runs_and_recovers_in_its_cluster(clusters: Clusters, spec: Spec) -> None:
    client = clusters.server.client
    assert [(each.name, each.answers, each.nodes) for each in client.clusters()] == [
        ("east", True, 2),
        ("west", True, 2),
    ]
    east, west = ({node.name for node in client.nodes() if node.cluster == name} for name in ("east", "west"))
    assert len(east) == len(west) == 2 and all(name.startswith("west:") for name in west)
    undisturbed = clusters.server.run(spec("undisturbed"))
    faults = [{"at": {"rank": 1, "step": 12, "phase": "backward"}, "do": "sigkill"}]
    failed = clusters.server.run(spec("failed", faults=faults, **WEST))
    assert_same_result(clusters.server, failed, undisturbed)
    assert [incident.reason for incident in failed.incidents] == ["rank_exit"]
    assert {place.node_name for place in undisturbed.placement} == east
    assert {place.node_name for place in failed.placement} == west
    with pytest.raises(ApiError, match="unknown cluster 'north'; clusters of this server: east, west"):
        client.submit(spec("nowhere", resources={"cluster": "north"}))


def test_a_cluster_that_is_cut_off_stops_no_other_and_loses_no_step(
    clusters: Clusters, spec: Spec, tmp_path: Path
) -> None:
    server, client, gates = clusters.server, clusters.server.client, Gates(tmp_path, 6, 18)
    job = client.submit(spec("cut-off", **WEST, **gates.parts))
    eventually(lambda: gates.ranks_at(6).keys() == RANKS, 120)
    clusters.west.kill()
    gates.open(6)
    eventually(lambda: not _of(server, "west").answers)
    assert server.run(spec("elsewhere")).state == "SUCCEEDED"
    waiting = client.submit(spec("waiting", **WEST))
    eventually(lambda: "in a cluster that does not answer" in str(client.get(waiting.id).conditions))
    # A server that starts while the cluster is cut off must not take its nodes for lost.
    server.kill()
    server.start()
    client = server.client
    eventually(lambda: gates.ranks_at(18).keys() == RANKS, 120)
    assert server.run(spec("after-a-restart")).state == "SUCCEEDED"
    assert client.get(job.id).state == "RUNNING" and not _of(server, "west").answers
    assert {node.health.status for node in client.nodes() if node.cluster == "west"} == {"unreachable"}
    clusters.west.start()
    eventually(lambda: _of(server, "west").answers)
    gates.open(18)
    done = client.wait(job.id, timeout_s=240)
    assert (done.state, done.generation, done.incidents) == ("SUCCEEDED", 1, [])
    assert server.client.ledger(job.id).exact
    assert client.wait(waiting.id, timeout_s=240).state == "SUCCEEDED"


def _of(server: Server, name: str) -> Any:
    return next(each for each in server.client.clusters() if each.name == name)
