"""Real nodes come and go under a job with a range: it grows, goes on without them, gives back what it does not need."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.schemas.drains import Drain
from regroup.api.schemas.jobs import Generation, Incident, Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
STEPS = 140
TOLERANCE = 1e-10
"""Relative, of each step's loss, in float64: sums are of another order where ranks are others."""
_RESIZED, _LOST = frozenset({"resized"}), frozenset({"agent_lost", "node_lost", "rank_exit"})
CAME_AND_WENT = Expected(
    incidents=(_RESIZED, _LOST, _RESIZED | {"drained"}), recovery_actions=frozenset({"resize", "shrink"}), detect_s=6.0,
    total_s=90.0, steps_lost=16, tolerance=TOLERANCE,
)  # fmt: skip
"""A change begins with the wish; a mirror is not of every step."""
WITHOUT_ROOM = Expected(
    incidents=(_LOST,), recovery_actions=frozenset({"respawn", "disk"}), detect_s=6.0, total_s=120.0, steps_lost=8
)
"""The job queues until there is another node."""
# Each step waits a little until the test has seen all that it came for: the job is there for as long as nodes take to
# come, and to be believed in.
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
    """A server with two nodes of two slots, to which others come: every test leaves it two that are open. It waits a
    moment only for a node to come back."""
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
    """The newest generation, once it has so many ranks and trains."""

    def found() -> Generation | None:
        now, formed = server.client.get(job.id), server.client.generations(job.id)
        assert not now.state.is_terminal, (now.state, now.reason, now.message)
        return formed[-1] if now.state == "RUNNING" and formed and formed[-1].world_size == ranks else None

    return eventually(found, within_s, 0.2)


def nodes_of(generation: Generation) -> dict[str, str]:
    """Node id → name."""
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
    # It has what it does not grow onto yet: a job keeps a size for a minute first.
    control = two.run(elastic(spec, "control", steps=STEPS) | {"layout": {"dp": 2}})
    assert control.state == "SUCCEEDED", (control.reason, control.message, control.error)
    with check_all_invariants(two, job, CAME_AND_WENT, control) as fell:
        told, least = _nodes_come_and_go(two, job, came, fell)
        seen.touch()
        done = two.client.wait(job.id, timeout_s=300)
    grew, died, drained = done.incidents
    assert brief(grew) == ("resized", "resize") and grew.steps_lost == 0
    assert died.recovery_action == "shrink"
    assert drained.steps_lost == 0
    drained_s = next(found.time_s for found in two.client.generations(job.id) if found.number == least.number)
    assert told.deadline_at is not None and drained_s < told.deadline_at
    two.client.undrain(told.node_id)


def _nodes_come_and_go(two: Server, job: Job, came: str, fell: Callable[[str], None]) -> tuple[Drain, Generation]:
    """A node that came is used, dies, and another is drained; what was said of that, and the generation without it."""
    grown = of_size(two, job, 6, 150)
    assert came in nodes_of(grown).values() and grown.restore["kind"] == "memory"

    def mirrored() -> bool:
        step = two.client.get(job.id).mirrored_step
        return step is not None and step > grown.start_step

    eventually(mirrored, 60)
    fell("kill_node")
    LocalFaults(two.state).kill_node(came)
    shrunk = of_size(two, job, 4, 120)
    assert came not in nodes_of(shrunk).values() and shrunk.restore["kind"] == "memory"

    leaves, name = next(iter(nodes_of(shrunk).items()))
    told = two.client.drain(leaves, deadline_s=30, reason="disks")
    least = of_size(two, job, 2, 60)
    assert name not in nodes_of(least).values() and least.restore["kind"] == "memory"
    empty = two.client.wait_for_drain(leaves)
    assert empty.jobs == []
    return told, least


@pytest.mark.slow
def test_one_device_of_a_node_goes_to_another_job_and_comes_back(two: Server, spec: Spec, tmp_path: Path) -> None:
    gates = Gates(tmp_path, 3, 7, 11)
    job = two.client.submit(elastic(spec, "gives", steps=16, **gates.parts))
    eventually(lambda: len(gates.ranks_at(3)) == 4, 120)
    agents = two.agents()
    two.client.resize(job.id, 3)
    until_told(two, job, 1)
    gates.open(3)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(7, 2)) == 3, 60)

    other = two.run(spec("takes", steps=4, layout={"dp": 1}))
    assert other.state == "SUCCEEDED", (other.reason, other.message, other.error)
    (second,) = two.client.generations(job.id)[1:]
    (place,) = other.placement
    assert sum(rank.node_id == place.node_id for rank in second.ranks) == 1, "beside one rank of the job that trains"

    two.client.resize(job.id, 4)
    until_told(two, job, 2)
    gates.open(7)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(11, 3)) == 4, 60)
    assert set(agents) <= set(two.agents()), "they keep their snapshots, and are not started anew"
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
    until_told(two, job, 1)
    gates.open(3)
    assert two.client.wait_for_resize(job.id, timeout_s=60)
    eventually(lambda: len(gates.ranks_at(7, 2)) == 2, 60)
    assert two.agents() == agents, "it keeps its snapshots, and is not started anew"
    gates.open(7)
    done = two.client.wait(job.id, timeout_s=120)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert [found.world_size for found in two.client.generations(job.id)] == [1, 2]
    assert len({rank.node_id for found in two.client.generations(job.id) for rank in found.ranks}) == 1
    assert [brief(each) for each in done.incidents] == [("resized", "resize")]


@pytest.mark.slow
def test_two_jobs_never_hold_a_half_each(two: Server, spec: Spec, tmp_path: Path) -> None:
    """Both need both nodes, and one node is lost: with placement groups of Ray alone each could hold one for ever."""
    gates, calm = Gates(tmp_path, 5), two.run(spec("calm", steps=8))
    first = two.client.submit(spec("first", steps=8, **gates.parts))
    second = two.client.submit(spec("second", steps=8))
    eventually(lambda: len(gates.ranks_at(5)) == 4, 120)
    assert two.client.get(second.id).state == "QUEUED"
    with (
        check_all_invariants(two, first, WITHOUT_ROOM, calm) as fell,
        check_all_invariants(two, second, Expected(), calm),
    ):
        fell("kill_node")
        LocalFaults(two.state).kill_node(two.client.generations(first.id)[0].ranks[0].node_name)
        gates.open(5)

        def states() -> set[str]:
            return {str(two.client.get(job.id).state) for job in (first, second)}

        eventually(lambda: states() == {"QUEUED"}, 120)
        assert sum(project.held for project in two.client.projects()) == 0, "nobody holds what is left"
        two.join()
        eventually(lambda: "RUNNING" in states(), 120)
        assert sum(project.held for project in two.client.projects()) == 4, "one has both, the other nothing"
        for job in (first, second):
            two.client.wait(job.id, timeout_s=240)


def until_told(server: Server, job: Job, times: int) -> None:
    """Its ranks hear that they are to end when they have passed the gate."""

    def told() -> bool:
        events = server.client.events(job.id)
        return sum(event.data.get("kind") == "leaving" for event in events) == times

    eventually(told, 60)
