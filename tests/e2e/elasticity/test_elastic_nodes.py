"""Real nodes join and leave a job with a range. It grows, continues without them, and releases surplus nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.schemas.drains import Drain
from regroup.api.schemas.history import Generation
from regroup.api.schemas.jobs import Incident, Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
STEPS = 140
TOLERANCE = 1e-10
"""Relative tolerance of each step's loss, in float64. Other ranks sum in another order."""
_RESIZED, _LOST = frozenset({"resized"}), frozenset({"agent_lost", "node_lost", "rank_exit"})
JOINED_AND_LEFT = Expected(
    incidents=(_RESIZED, _LOST, _RESIZED | {"drained"}), recovery_actions=frozenset({"resize", "shrink"}), detect_s=6.0,
    total_s=90.0, steps_lost=16, tolerance=TOLERANCE,
)  # fmt: skip
"""A change begins with the request; a mirror does not cover every step."""
WITHOUT_CAPACITY = Expected(
    incidents=(_LOST,), recovery_actions=frozenset({"respawn", "disk"}), detect_s=6.0, total_s=120.0, steps_lost=8
)
"""The job queues until another node joins."""
# Each step is slow until the test has finished its checks. The job then lasts as long as nodes need to
# # join and to be accepted.
_SLOW = """
import os, time
from regroup.workers.rank.context import Context

commit = Context.commit

def slowly(self, step, *args, **fields):
    if not os.path.exists(os.environ["SEEN"]):
        time.sleep(1.5)
    return commit(self, step, *args, **fields)

Context.commit = slowly
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two nodes of two slots, which others join. Every test leaves it with two open nodes.

    The server waits only shortly for a node to return.
    """
    settings = {"REGROUP_REPLACEMENT_WAIT_S": "1"}
    server = Server(tmp_path_factory.mktemp("two") / "state", nodes=2, environment=settings)
    server.start()
    yield server
    server.down()


def elastic(spec: Spec, name: str, *, steps: int, **parts: Any) -> dict[str, Any]:
    made = spec(name, steps=steps, layout={"dp": {"min": 2, "target": 4, "max": 6}}, **parts)
    made["workload"]["model"] = {"dim": 32, "layers": 2, "heads": 4, "vocab_size": 264}
    made["workload"]["data"] = {"train": made["workload"]["data"]["train"], "tokenizer": "byte"}
    made["training"] |= {"precision": "fp64", "micro_batch": 1, "global_batch": 12}
    return made


def of_size(server: Server, job: Job, ranks: int, within_s: float) -> Generation:
    """Return the newest generation, once it has this number of ranks and trains."""

    def found() -> Generation | None:
        now, formed = server.client.get(job.id), server.client.generations(job.id)
        assert not now.state.is_terminal, (now.state, now.reason, now.message)
        return formed[-1] if now.state == "RUNNING" and formed and formed[-1].world_size == ranks else None

    return eventually(found, within_s, 0.2)


def nodes_of(generation: Generation) -> dict[str, str]:
    """Return node id → name."""
    return {rank.node_id: rank.node_name for rank in generation.ranks}


def brief(incident: Incident) -> tuple[str, str | None]:
    return incident.reason, incident.recovery_action


@pytest.mark.slow
def test_a_node_joins_one_dies_and_one_is_drained(two: Server, spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(_SLOW)
    seen = tmp_path / "seen"
    slow: dict[str, Any] = {"env": {"PYTHONPATH": str(tmp_path), "SEEN": str(seen)}, "preload": ["slow"]}
    job = two.client.submit(elastic(spec, "elastic", steps=STEPS, snapshot={"mirror_share": 0.5}, **slow))
    of_size(two, job, 4, 120)
    came = two.join()
    # The node is not used yet: a job keeps a size for at least a minute.
    control = two.run(elastic(spec, "control", steps=STEPS) | {"layout": {"dp": 2}})
    assert control.state == "SUCCEEDED", (control.reason, control.message, control.error)
    with check_all_invariants(two, job, JOINED_AND_LEFT, control) as record_fault:
        drain, least = _nodes_join_and_leave(two, job, came, record_fault)
        seen.touch()
        done = two.client.wait(job.id, timeout_s=300)
    grew, died, drained = done.incidents
    assert brief(grew) == ("resized", "resize") and grew.steps_lost == 0
    assert died.recovery_action == "shrink"
    assert drained.steps_lost == 0
    drained_s = next(found.time_s for found in two.client.generations(job.id) if found.number == least.number)
    assert drain.deadline_at is not None and drained_s < drain.deadline_at
    two.client.undrain(drain.node_id)


def _nodes_join_and_leave(
    two: Server, job: Job, came: str, record_fault: Callable[[str], None]
) -> tuple[Drain, Generation]:
    """Use a node that joined, kill it and drain another; return the drain and the generation without it."""
    grown = of_size(two, job, 6, 150)
    assert came in nodes_of(grown).values() and grown.restore["kind"] == "memory"

    def mirrored() -> bool:
        step = two.client.get(job.id).mirrored_step
        return step is not None and step > grown.start_step

    eventually(mirrored, 60)
    record_fault("kill_node")
    LocalFaults(two.state).kill_node(came)
    shrunk = of_size(two, job, 4, 120)
    assert came not in nodes_of(shrunk).values() and shrunk.restore["kind"] == "memory"

    leaves, name = next(iter(nodes_of(shrunk).items()))
    drain = two.client.drain(leaves, deadline_s=30, reason="disks")
    least = of_size(two, job, 2, 60)
    assert name not in nodes_of(least).values() and least.restore["kind"] == "memory"
    empty = two.client.wait_for_drain(leaves)
    assert empty.jobs == []
    return drain, least


@pytest.mark.slow
def test_one_device_of_a_node_is_lent_to_another_job_and_returned(two: Server, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 3, 7, 11)
    job = two.client.submit(elastic(spec, "gives", steps=16, **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    agents = two.agents()
    two.client.resize(job.id, 3)
    wait_until_notified(two, job, 1)
    gates.open(3)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(7, 2)) == 3, 60)

    other = two.run(spec("takes", steps=4, layout={"dp": 1}))
    assert other.state == "SUCCEEDED", (other.reason, other.message, other.error)
    (second,) = two.client.generations(job.id)[1:]
    (place,) = other.placement
    assert sum(rank.node_id == place.node_id for rank in second.ranks) == 1, "next to one rank of the job that trains"

    two.client.resize(job.id, 4)
    wait_until_notified(two, job, 2)
    gates.open(7)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(11, 3)) == 4, 60)
    assert set(agents) <= set(two.agents()), "agents keep their snapshots, and do not restart"
    gates.open(11)
    done = two.client.wait(job.id, timeout_s=120)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert [found.world_size for found in two.client.generations(job.id)] == [4, 3, 4]
    assert [brief(each) for each in done.incidents] == [("resized", "resize")] * 2
    ledger = two.client.ledger(job.id)
    assert ledger.exact, ledger.problems


@pytest.mark.slow
def test_a_job_grows_inside_a_node(two: Server, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 3, 7)
    inside = elastic(spec, "inside", steps=12, **gates.parts) | {"layout": {"dp": {"min": 1, "target": 1, "max": 2}}}
    job = two.client.submit(inside)
    eventually(lambda: len(gates.ranks_at(3)) == 1, 120)
    agents = two.agents()
    two.client.resize(job.id, 2)
    wait_until_notified(two, job, 1)
    gates.open(3)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(7, 2)) == 2, 60)
    assert two.agents() == agents, "the agent keeps its snapshots, and does not restart"
    gates.open(7)
    done = two.client.wait(job.id, timeout_s=120)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert [found.world_size for found in two.client.generations(job.id)] == [1, 2]
    assert len({rank.node_id for found in two.client.generations(job.id) for rank in found.ranks}) == 1
    assert [brief(each) for each in done.incidents] == [("resized", "resize")]


@pytest.mark.slow
def test_two_jobs_never_get_half_the_nodes_each(two: Server, spec: Spec, tmp_path: Path) -> None:
    """Lose one of two nodes that two jobs both need.

    With Ray's placement groups alone, each job could keep one forever.
    """
    gates, calm = Gates(tmp_path, 5), two.run(spec("calm", steps=8))
    first = two.client.submit(spec("first", steps=8, **gates.parts))
    second = two.client.submit(spec("second", steps=8))
    eventually(lambda: len(gates.ranks_at(5)) == 4, 120)
    assert two.client.get(second.id).state == "QUEUED"
    with (
        check_all_invariants(two, first, WITHOUT_CAPACITY, calm) as record_fault,
        check_all_invariants(two, second, Expected(), calm),
    ):
        record_fault("kill_node")
        LocalFaults(two.state).kill_node(two.client.generations(first.id)[0].ranks[0].node_name)
        gates.open(5)

        def states() -> set[str]:
            return {str(two.client.get(job.id).state) for job in (first, second)}

        eventually(lambda: states() == {"QUEUED"}, 120)
        assert sum(project.allocated for project in two.client.projects()) == 0, "no job holds the remaining node"
        two.join()
        eventually(lambda: "RUNNING" in states(), 120)
        assert sum(project.allocated for project in two.client.projects()) == 4, "one job has both, the other nothing"
        for job in (first, second):
            two.client.wait(job.id, timeout_s=240)


def wait_until_notified(server: Server, job: Job, times: int) -> None:
    """Wait until ranks got the message to end when they have passed the gate."""

    def is_notified() -> bool:
        events = server.client.events(job.id)
        return sum(event.data.get("kind") == "leaving" for event in events) == times

    eventually(is_notified, 60)
