"""A node is drained while a job trains there. The job continues on another node. No step or budget is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from regroup.service.local.ray_cluster import load, ray_environment
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, agent_of, assert_same_result, eventually, parent

Spec = Callable[..., dict[str, Any]]
_DRAINED = (frozenset({"drained"}),)
RELOCATED = Expected(incidents=_DRAINED, recovery_actions=frozenset({"spare"}), total_s=60.0, steps_lost=0)
"""An incident begins with the notice, and the ranks wait at a gate."""
REQUEUED = Expected(
    incidents=_DRAINED, recovery_actions=frozenset({"disk"}), detect_s=60.0, total_s=120.0, steps_lost=0
)
SHORT_S = 20.0
"""The last quarter is for the handover."""
_DRAIN = """
import sys, time
from ray._raylet import GcsClient
accepted, why = GcsClient(address=sys.argv[1]).drain_node(sys.argv[2], 2, "spot", int((time.time() + 60) * 1000))
assert accepted, why
"""


def by_ray(server: Server, node: str) -> None:
    """Drain a node through Ray, as a cloud does that reclaims a machine."""
    cluster = load(server.state)
    assert cluster is not None
    environment = {**os.environ, **ray_environment(Path(cluster.token_path))}
    command = [sys.executable, "-c", _DRAIN, cluster.address, node]
    subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True)


def held_at_3(server: Server, spec: dict[str, Any], gates: Gates) -> Job:
    """Submit a job whose ranks wait at the end of step 3."""
    job = server.client.submit(spec)
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    return job


def wait_until_notified(server: Server, job: Job) -> None:
    """Wait until ranks got the message to end when they have passed the gate."""
    eventually(lambda: any(event.data.get("kind") == "leaving" for event in server.client.events(job.id)), 60)


def states(server: Server, job: Job) -> list[tuple[str, str]]:
    return [(e.data["to"], e.data["reason"]) for e in server.client.events(job.id) if e.type == "state"]


def moves(server: Server, job: Job, drain: Callable[[str], Any], control: Job, gates: Gates) -> str:
    """Check that the job moves to another node; return the id of the one that it left."""
    (first,) = server.client.generations(job.id)
    left = first.ranks[0]
    with check_all_invariants(server, job, RELOCATED, control):
        drain(left.node_id)
        wait_until_notified(server, job)
        gates.open(3)
        done = server.client.wait(job.id, timeout_s=240)
    (incident,) = done.incidents
    second = server.client.generations(job.id)[1]
    assert (second.start_step, second.cause) == (incident.at_step, "drained") and second.start_step >= 3
    assert left.node_id not in {rank.node_id for rank in second.ranks}
    assert [rank.node_name for rank in second.ranks[2:]] == [rank.node_name for rank in first.ranks[2:]]
    assert ("RESIZING", "drained") in states(server, job)
    assert "RECOVERING" not in {state for state, _ in states(server, job)}
    return left.node_id


def requeues(server: Server, job: Job, control: Job, gates: Gates) -> None:
    """Check that a job without another node saves its last step and queues until there is one."""
    (first,) = server.client.generations(job.id)
    left = first.ranks[0].node_id
    with check_all_invariants(server, job, REQUEUED, control):
        server.client.drain(left, deadline_s=14, reason="disks")
        wait_until_notified(server, job)
        gates.open(3)
        eventually(lambda: ("QUEUED", "drained") in states(server, job), 60)
        assert server.client.wait_for_drain(left).jobs == []
        server.client.undrain(left)
        server.client.wait(job.id, timeout_s=240)


def is_too_slow(server: Server, job: Job, control: Job, gates: Gates) -> str:
    """Drain in a step that takes longer than the deadline. It is repeated elsewhere, from the state in memory."""
    (first,) = server.client.generations(job.id)
    left = first.ranks[0].node_id
    with check_all_invariants(server, job, RELOCATED, control):
        drain = server.client.drain(left, deadline_s=SHORT_S, reason="disks")
        eventually(lambda: len(gates.ranks_at(3, 2)) == 4, 60)
        gates.open(3)
        done = server.client.wait(job.id, timeout_s=240)
    (incident,) = done.incidents
    second = server.client.generations(job.id)[1]
    assert second.restore["kind"] == "memory" and second.start_step == incident.at_step == 2
    assert left not in {rank.node_id for rank in second.ranks}
    assert drain.deadline_at is not None and second.time_s < drain.deadline_at
    return left


@pytest.mark.slow
def test_a_job_leaves_nodes_that_users_and_ray_drain(
    three: Server, undisturbed: Job, spec: Spec, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("people", "hasty", "ray", "nobody")]
    for folder in folders:
        folder.mkdir()
    all_gates = [Gates(folder, 3) for folder in folders]

    def submitted(number: int) -> Job:
        return held_at_3(three, spec(f"leaves-{number}", **all_gates[number].parts), all_gates[number])

    def by_people(node: str) -> Any:
        return three.client.drain(node, deadline_s=60, reason="disks")

    left = moves(three, submitted(0), by_people, undisturbed, all_gates[0])
    assert three.client.wait_for_drain(left).jobs == []
    three.client.undrain(left)
    three.client.undrain(is_too_slow(three, submitted(1), undisturbed, all_gates[1]))
    moves(three, submitted(2), lambda node: by_ray(three, node), undisturbed, all_gates[2])
    requeues(three, submitted(3), undisturbed, all_gates[3])


@pytest.mark.slow
def test_a_node_that_receives_sigterm_charges_no_budget(
    three: Server, undisturbed: Job, spec: Spec, tmp_path: Path
) -> None:
    """Send SIGTERM to the raylet. The agent ends with it at once, before it can act."""
    gates = Gates(tmp_path, 3)
    job = held_at_3(three, spec("sigterm", **gates.parts), gates)
    agent = agent_of(gates.ranks_at(3)[0])
    os.kill(parent(agent), signal.SIGTERM)
    # At first the record shows a lost agent: the ranks end before the supervisor queries Ray for the node's state.
    eventually(lambda: [each.reason for each in three.client.get(job.id).incidents] == ["drained"], 60)
    (incident,) = three.client.get(job.id).incidents
    assert "SIGTERM" in incident.cause
    gates.open(3)
    assert_same_result(three, three.client.wait(job.id, timeout_s=120), undisturbed)
