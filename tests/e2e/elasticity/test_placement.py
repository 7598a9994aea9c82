"""Where ranks really go, on three real nodes in two racks: TP pairs are whole, stages that talk are neighbours."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.servers.regroup_server import Server, assert_same_result, eventually

Spec = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.slow
RACKS = "SwitchName=left Nodes=local-1,local-3\nSwitchName=right Nodes=local-2\nSwitchName=spine Switches=left,right\n"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose nodes are in two racks."""
    folder = tmp_path_factory.mktemp("racks")
    (folder / "topology.conf").write_text(RACKS)
    environment = {"REGROUP_TOPOLOGY_FILE": str(folder / "topology.conf")}
    server = Server(folder / "state", nodes=3, environment=environment)
    server.start()
    yield server
    server.down()


def test_a_job_stays_in_the_rack_that_holds_it_and_is_told_why(racks: Server, spec: Spec) -> None:
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


def test_stages_that_say_most_share_a_node_and_a_lost_rank_costs_no_bit(racks: Server, spec: Spec) -> None:
    def talkative(name: str, **parts: Any) -> dict[str, Any]:
        plain = spec(name, layout={"dp": 2, "pp": 2, "data_parallel": "ddp"}, **parts)
        return {**plain, "training": {**plain["training"], "sequence": 256}}

    all_are_free(racks)
    whole = racks.run(talkative("whole"))
    nodes = {place.rank: place.node_name for place in whole.placement}
    assert nodes[0] == nodes[2] != nodes[1] == nodes[3], "ranks 0 and 2 are stages of one pipeline"
    all_are_free(racks)
    struck = racks.run(
        talkative("struck", faults=[{"at": {"rank": 1, "step": 7, "phase": "backward"}, "do": "sigkill"}])
    )
    assert [incident.recovery_action for incident in struck.incidents] == ["respawn"]
    assert {place.rank: place.node_name for place in struck.placement} == nodes
    assert_same_result(racks, struck, whole)


def all_are_free(racks: Server) -> None:
    """Nodes are given back one by one after a job's end: two that are free already would hold the next one, too."""
    eventually(lambda: all(node.free_cpus == node.cpus and not node.jobs for node in racks.client.nodes()))


def test_a_pair_that_splits_tensors_is_on_one_node_whatever_is_free(racks: Server, spec: Spec) -> None:
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
