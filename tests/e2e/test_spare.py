"""A whole node dies. Another takes its place, the others stay, and the state comes from memory."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from house.gates import Gates
from house.served import Served, assert_same_result, eventually, parent

from regroup.service.runtime import local_ray
from regroup.service.settings import Settings

Spec = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a node more than the job takes."""
    server = Served(tmp_path_factory.mktemp("three") / "state", nodes=3)
    server.start()
    yield server
    server.down()


@pytest.mark.slow
def test_a_node_that_was_held_ready_takes_the_place_of_a_lost_one(three: Served, spec: Spec, tmp_path: Path) -> None:
    control = three.run(spec("calm"))
    gates = Gates(tmp_path, 3)
    job = three.client.submit(spec("has-a-spare", recovery={"spares": 1}, **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)

    def ready() -> str:
        said = [each for each in three.client.get(job.id).conditions if each.type == "SparesReady"]
        return said[0].message if said and said[0].status else ""

    message = eventually(ready, 90)
    (first,) = three.client.generations(job.id)
    assert message.removeprefix("ready to take over: ") not in {rank.node_name for rank in first.ranks}
    agent = parent(parent(gates.ranks_at(3)[0]))
    os.kill(parent(agent), signal.SIGKILL)  # what is a node to Ray: all that runs there ends with it
    eventually(lambda: three.client.get(job.id).state == "RECOVERING", 60)
    gates.open(3)
    done = three.client.wait(job.id, timeout_s=240)
    assert_same_result(three, done, control)
    (incident,) = done.incidents
    assert (incident.reason, incident.rung) == ("agent_lost", "spare")
    names = {rank.node_name for rank in three.client.generations(job.id)[1].ranks}
    assert message == f"ready to take over: {(names - {rank.node_name for rank in first.ranks}).pop()}"
    kind = Settings(state_dir=three.state, local_nodes=3, slots_per_node=2, local_gpus_per_node=0)
    local_ray.add_node(kind)  # for the others of this file


def test_another_node_takes_the_place_of_a_lost_one(three: Served, spec: Spec, tmp_path: Path) -> None:
    control = three.run(spec("whole"))
    gates = Gates(tmp_path, *range(3, 8))
    job = three.client.submit(spec("loses-a-node", snapshot={"mirror_share": 0.5}, **gates.parts))

    def mirrored() -> int:
        return three.client.get(job.id).mirrored_step or 0

    for step in range(3, 7):
        eventually(lambda step=step: len(gates.ranks_at(step)) == 4, 120)
        with suppress(AssertionError):
            eventually(mirrored, 2)
        gates.open(step)
    eventually(lambda: len(gates.ranks_at(7)) == 4 and mirrored(), 120)
    (first,) = three.client.generations(job.id)
    lost = first.ranks[0].node_name
    agent = parent(parent(gates.ranks_at(7)[0]))
    os.kill(parent(agent), signal.SIGKILL)  # what is a node to Ray: all that runs there ends with it
    eventually(lambda: three.client.get(job.id).state == "RECOVERING", 60)  # until then what is left of it may train
    gates.open(7)
    done = three.client.wait(job.id, timeout_s=240)
    assert_same_result(three, done, control)
    (incident,) = done.incidents
    assert (incident.reason, incident.rung) == ("agent_lost", "spare")
    second = three.client.generations(job.id)[1]
    assert second.start_step >= 1 and lost not in {rank.node_name for rank in second.ranks}
    assert [rank.node_name for rank in second.ranks[2:]] == [rank.node_name for rank in first.ranks[2:]]
    assert incident.steps_lost == incident.at_step - second.start_step
