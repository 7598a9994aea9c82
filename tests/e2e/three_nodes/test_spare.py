"""A whole node dies. Another replaces it, the other nodes stay, and the state is restored from memory."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, agent_of, eventually, parent

Spec = Callable[..., dict[str, Any]]
TOOK_OVER = Expected(
    incidents=(frozenset({"agent_lost"}),),
    recovery_actions=frozenset({"spare"}),
    detect_s=6.0,
    total_s=60.0,
    steps_lost=7,
)
"""A mirror does not cover every step, and the surviving ranks wait at a gate for some time."""


def ready(server: Server, job: Job) -> str:
    """Return the name of the spare that is ready; empty if there is none."""
    found = [each for each in server.client.get(job.id).conditions if each.type == "SparesReady"]
    return found[0].message.removeprefix("ready: ") if found and found[0].status else ""


@pytest.mark.slow
def test_a_spare_replaces_a_lost_node(three: Server, undisturbed: Job, spec: Spec, tmp_path: Path) -> None:
    """Kill the first spare before it is needed. Another one becomes ready, and the job does not notice."""
    gates = Gates(tmp_path, 3)
    job = three.client.submit(spec("has-a-spare", recovery={"spares": 1}, **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    with check_all_invariants(three, job, TOOK_OVER, undisturbed):
        idle = eventually(lambda: ready(three, job), 90)
        LocalFaults(three.state).kill_node(idle)
        eventually(lambda: not ready(three, job), 60)
        came = three.join()
        assert eventually(lambda: ready(three, job), 90) == came
        agent = agent_of(gates.ranks_at(3)[0])
        os.kill(parent(agent), signal.SIGKILL)  # a node to Ray: every process of the node ends with it
        eventually(lambda: three.client.get(job.id).state == "RECOVERING", 60)
        gates.open(3)
        three.client.wait(job.id, timeout_s=240)
    first, second = ({rank.node_name for rank in each.ranks} for each in three.client.generations(job.id))
    assert idle not in first and second - first == {came}


@pytest.mark.slow
def test_another_node_replaces_a_lost_one(three: Server, undisturbed: Job, spec: Spec, tmp_path: Path) -> None:
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
    agent = agent_of(gates.ranks_at(7)[0])
    with check_all_invariants(three, job, TOOK_OVER, undisturbed):
        os.kill(parent(agent), signal.SIGKILL)  # a node to Ray: every process of the node ends with it
        # Until then its remaining ranks may train.
        eventually(lambda: three.client.get(job.id).state == "RECOVERING", 60)
        gates.open(7)
        done = three.client.wait(job.id, timeout_s=240)
    (incident,) = done.incidents
    second = three.client.generations(job.id)[1]
    assert second.start_step >= 1 and lost not in {rank.node_name for rank in second.ranks}
    assert [rank.node_name for rank in second.ranks[2:]] == [rank.node_name for rank in first.ranks[2:]]
    assert incident.steps_lost == incident.at_step - second.start_step
