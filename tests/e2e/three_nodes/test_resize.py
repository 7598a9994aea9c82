"""A job is resized while it trains. No step is lost, and the losses are those of a run of constant size.

The losses are also the same if the only node with capacity for a group of ranks dies, and the model is split
differently.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.chaos.local_faults import LocalFaults
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.invariants import Expected
from tests.support.jobs.invariant_checks import check_all_invariants
from tests.support.jobs.step_gates import Gates
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]
TOLERANCE = 1e-10
"""Relative tolerance of each step's loss, in float64. Other ranks sum in another order."""
_GATES_AT = (3, 7, 11, 14)
SAVED_EVERY, KILLED_AT = 4, 9
MODEL = {"dim": 32, "layers": 4, "heads": 4, "vocab_size": 264}


def elastic(spec: Spec, name: str) -> dict[str, Any]:
    made = spec(name, steps=16, layout={"dp": {"min": 1, "target": 4, "max": 6}})
    made["workload"]["model"] = MODEL
    made["workload"]["data"]["tokenizer"] = "byte"
    made["training"] |= {"precision": "fp64", "micro_batch": 1}
    return made


def resized(times: int) -> Expected:
    """Return the expectation. A change begins with the request, and ranks wait at a gate until they get it."""
    why = (frozenset({"resized"}),) * times
    return Expected(
        incidents=why, recovery_actions=frozenset({"resize"}), total_s=60.0, steps_lost=0, tolerance=TOLERANCE
    )


def ranks_by_node(server: Server, job: Job) -> list[dict[str, int]]:
    """Return node → ranks of each generation."""
    found: list[dict[str, int]] = []
    for generation in server.client.generations(job.id):
        found.append({})
        for rank in generation.ranks:
            found[-1][rank.node_name] = found[-1].get(rank.node_name, 0) + 1
    return found


def resize_through(server: Server, spec: dict[str, Any], control: Job, folder: Path, *sizes: dict[str, int]) -> Job:
    """Resize a job to one size after the other, each time while its ranks wait at the end of a step.

    At the last size the ranks wait once more, so that they can be inspected.
    """
    gates = Gates(folder, *_GATES_AT[: len(sizes) + 1])
    with check_all_invariants(
        server, job := server.client.submit({**spec, **gates.parts}), resized(len(sizes)), control
    ):
        _goes_through(server, job, gates, *sizes)
        server.client.wait(job.id, timeout_s=240)
    return job


def _goes_through(server: Server, job: Job, gates: Gates, *sizes: dict[str, int]) -> None:
    for number, (size, step) in enumerate(zip(sizes, _GATES_AT, strict=False), 1):
        generation = eventually(lambda step=step: held_at(server, job, gates, step), 120)
        agents = sorted(server.agents())
        server.client.resize(job.id, **size)
        eventually(lambda number=number: count_notices(server, job) == number, 60)
        gates.open(step)
        layout = server.client.wait_for_resize(job.id, timeout_s=60)
        assert layout is not None and layout.data_degree == size["dp"]
        assert (layout.tp, layout.pp) == (size.get("tp", 1), size.get("pp", 1))
        held = {rank.node_id for rank in server.client.generations(job.id)[generation - 1].ranks}
        if held == {rank.node_id for rank in server.client.generations(job.id)[generation].ranks}:
            # Agents keep their snapshots, and do not restart. A process has no title while it changes it.
            eventually(lambda agents=agents: sorted(server.agents()) == agents, 10)
    gates.open(_GATES_AT[len(sizes)])


def held_at(server: Server, job: Job, gates: Gates, step: int) -> int:
    """Return the generation whose ranks all wait at the gate; 0 if there is none."""
    formed = server.client.generations(job.id)
    is_held = formed and len(gates.ranks_at(step, formed[-1].number)) == formed[-1].world_size
    return formed[-1].number if is_held else 0


def count_notices(server: Server, job: Job) -> int:
    """Count the messages to ranks to end when they have passed the gate."""
    return sum(event.data.get("kind") == "leaving" for event in server.client.events(job.id))


def assert_from_memory(server: Server, job: Job, changes: int) -> None:
    assert [each.restore["kind"] for each in server.client.generations(job.id)[1:]] == ["memory"] * changes
    states = [(e.data["to"], e.data["reason"]) for e in server.client.events(job.id) if e.type == "state"]
    assert states.count(("RESIZING", "resized")) == changes and ("RECOVERING", "resized") not in states


def test_two_ranks_then_one_on_two_nodes_and_back(served: Server, spec: Spec, tmp_path: Path) -> None:
    control = served.run(elastic(spec, "kept"))
    job = resize_through(served, elastic(spec, "sizes"), control, tmp_path, {"dp": 3}, {"dp": 4})
    assert_from_memory(served, job, 2)
    assert [sorted(each.values()) for each in ranks_by_node(served, job)] == [[2, 2], [1, 2], [2, 2]]


@pytest.mark.slow
def test_four_six_three_and_four_ranks(three: Server, spec: Spec, tmp_path: Path) -> None:
    control = three.run(elastic(spec, "kept"))
    job = resize_through(three, elastic(spec, "sizes"), control, tmp_path, {"dp": 6}, {"dp": 3}, {"dp": 4})
    assert_from_memory(three, job, 3)
    assert [sum(each.values()) for each in ranks_by_node(three, job)] == [4, 6, 3, 4]


@pytest.mark.slow
def test_micro_batches_become_smaller_where_a_layout_needs_it(served: Server, spec: Spec, tmp_path: Path) -> None:
    whole = elastic(spec, "sizes")
    whole["layout"]["dp"] = {"min": 1, "target": 2, "max": 4}
    whole["training"]["micro_batch"] = whole["training"]["global_batch"] // 2
    control = served.run({**whole, "name": "kept"})
    job = resize_through(served, whole, control, tmp_path, {"dp": 4}, {"dp": 2, "pp": 2}, {"dp": 2, "pp": 1})
    assert_from_memory(served, job, 3)
    half = whole["training"]["micro_batch"] // 2
    assert [each.layout.micro_batch for each in served.client.generations(job.id)] == [None, half, half, None]


@pytest.mark.slow
def test_fsdp_then_tensor_then_pipeline_parallel(served: Server, spec: Spec, tmp_path: Path) -> None:
    sizes = {"dp": 2, "tp": 2}, {"dp": 2, "tp": 1, "pp": 2}
    control = served.run(elastic(spec, "whole"))
    job = resize_through(served, elastic(spec, "split"), control, tmp_path, *sizes)
    assert_from_memory(served, job, 2)
    assert [sum(each.values()) for each in ranks_by_node(served, job)] == [4, 4, 4]


@pytest.mark.slow
def test_the_layout_changes_when_no_node_has_capacity_for_a_group(three: Server, spec: Spec, tmp_path: Path) -> None:
    control = three.run(split_tensors(spec, "control"))
    (tmp_path / "pair").mkdir()
    (tmp_path / "others").mkdir()
    gates, others = Gates(tmp_path / "pair", KILLED_AT), Gates(tmp_path / "others", 1)
    job = three.client.submit(split_tensors(spec, "pair", **gates.parts))
    eventually(lambda: len(gates.ranks_at(KILLED_AT)) == 2, 120)
    other_spec = spec("beside", layout={"dp": 2}, topology={"spread": "node"}, **others.parts)
    holder = three.client.submit(other_spec)  # one slot of each of the two other nodes
    eventually(lambda: len(others.ranks_at(1)) == 2, 120)
    (before,) = three.client.generations(job.id)
    (node,) = {rank.node_name for rank in before.ranks}
    LocalFaults(three.state).kill_node(node)
    gates.open(KILLED_AT)
    done = three.client.wait(job.id, timeout_s=240)
    others.open(1)
    three.client.wait(holder.id, timeout_s=120)

    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    after = three.client.generations(job.id)[-1]
    assert after.world_size == 2 and len({rank.node_name for rank in after.ranks} - {node}) == 2
    assert after.layout.tp == 1 and after.restore["kind"] == "checkpoint", "its only node had all its memory"
    (incident,) = done.incidents
    assert incident.reason in ("agent_lost", "node_lost") and incident.recovery_action == "disk"
    assert incident.steps_lost is not None and incident.steps_lost <= SAVED_EVERY
    ledger = three.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert done.digest.samples == control.digest.samples
    kept = {row.step: row.loss for row in three.client.steps(control.id)}
    assert {row.step: row.loss for row in three.client.steps(job.id)} == pytest.approx(kept, rel=TOLERANCE)


def split_tensors(spec: Spec, name: str, **parts: Any) -> dict[str, Any]:
    made = spec(name, steps=16, layout={"tp": 2}, checkpoint={"every_steps": SAVED_EVERY}, **parts)
    made["workload"]["model"] = {**MODEL, "layers": 2}
    made["workload"]["data"] = {"train": made["workload"]["data"]["train"], "tokenizer": "byte"}
    made["training"] |= {"precision": "fp64", "micro_batch": 1, "global_batch": 4}
    return made
