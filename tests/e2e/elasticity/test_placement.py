"""Real placements on three real nodes in two racks: TP pairs stay whole, stages that communicate are neighbors."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.slow, pytest.mark.alone]
RACKS = "SwitchName=left Nodes=local-1,local-3\nSwitchName=right Nodes=local-2\nSwitchName=spine Switches=left,right\n"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with nodes in two racks."""
    folder = tmp_path_factory.mktemp("racks")
    (folder / "topology.conf").write_text(RACKS)
    environment = {"REGROUP_TOPOLOGY_FILE": str(folder / "topology.conf")}
    server = Server(folder / "state", nodes=3, environment=environment)
    server.start()
    yield server
    server.down()


def test_a_job_stays_in_the_rack_that_has_capacity_and_reports_why(racks: Server, spec: Spec) -> None:
    tree = racks.client.topology()
    assert [(rack.name, [node.name for node in rack.children]) for rack in tree.domains[0].children] == [
        ("left", ["local-1", "local-3"]), ("right", ["local-2"]),
    ]  # fmt: skip
    job = racks.client.submit(spec("in-a-rack", steps=400, topology={"required": "rack"}))
    eventually(lambda: racks.client.get(job.id).state == "RUNNING", 120)
    assert {place.node_name for place in racks.client.get(job.id).placement} == {"local-1", "local-3"}
    choice = racks.client.why(job.id).choice
    assert choice is not None and choice.inside == "rack spine/left"
    waiting = racks.client.submit(spec("waits", topology={"required": "rack"}))
    eventually(lambda: racks.client.get(waiting.id).conditions, 60)
    condition = next(each for each in racks.client.get(waiting.id).conditions if each.type == "Placeable")
    assert condition.reason == "resources" and "2 of 6 are free now" in condition.message
    racks.client.cancel(waiting.id)
    racks.client.cancel(job.id)
    racks.client.wait(job.id, timeout_s=120)


def test_stages_that_communicate_most_share_a_node_and_recovery_is_bitwise(racks: Server, spec: Spec) -> None:
    def communicating(name: str, **parts: Any) -> dict[str, Any]:
        plain = spec(name, layout={"dp": 2, "pp": 2, "data_parallel": "ddp"}, **parts)
        return {**plain, "training": {**plain["training"], "sequence": 256}}

    all_are_free(racks)
    whole = racks.run(communicating("whole"))
    nodes = {place.rank: place.node_name for place in whole.placement}
    assert nodes[0] == nodes[2] != nodes[1] == nodes[3], "ranks 0 and 2 are stages of one pipeline"
    all_are_free(racks)
    disturbed = racks.run(
        communicating("disturbed", faults=[{"at": {"rank": 1, "step": 7, "phase": "backward"}, "do": "sigkill"}])
    )
    assert [incident.recovery_action for incident in disturbed.incidents] == ["respawn"]
    assert {place.rank: place.node_name for place in disturbed.placement} == nodes
    assert_same_result(racks, disturbed, whole)


def all_are_free(racks: Server) -> None:
    """Wait until all nodes are free. They are released one by one, and two are enough for the next job."""
    eventually(lambda: all(node.free_cpus == node.cpus and not node.jobs for node in racks.client.nodes()))


def test_a_tensor_parallel_pair_is_on_one_node_whatever_is_free(racks: Server, spec: Spec) -> None:
    lone = racks.client.submit(spec("lone", layout={"dp": 1}, steps=20000))
    eventually(lambda: racks.client.get(lone.id).state == "RUNNING", 120)
    model = {"dim": 32, "layers": 2, "heads": 2, "vocab_size": 258}
    plain = spec("pairs", layout={"dp": 2, "tp": 2})
    pairs = racks.run({**plain, "workload": {**plain["workload"], "model": model}})
    nodes = {place.rank: place.node_name for place in pairs.placement}
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    (held,) = racks.client.get(lone.id).placement
    assert held.node_name not in nodes.values()
    racks.client.cancel(lone.id)
    racks.client.wait(lone.id, timeout_s=120)
