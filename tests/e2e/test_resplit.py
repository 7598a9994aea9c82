"""The only node that holds a group of ranks together dies: the model is split otherwise, over what is left."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from house.gates import Gates
from house.served import Served, eventually

from regroup.service.runtime.local_strikes import LocalStrikes

Spec = Callable[..., dict[str, Any]]
HELD_AT, SAVED_EVERY, STEPS = 9, 4, 16
TOLERANCE = 1e-10
"""Relative, of each step's loss, in float64: sums are of another order in another split."""


@pytest.fixture
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with three nodes of two slots."""
    server = Served(tmp_path_factory.mktemp("three") / "state", nodes=3)
    server.start()
    yield server
    server.down()


def split_tensors(spec: Spec, name: str, **parts: Any) -> dict[str, Any]:
    made = spec(name, steps=STEPS, layout={"tp": 2}, checkpoint={"every_steps": SAVED_EVERY}, **parts)
    made["workload"]["model"] = {"dim": 32, "layers": 2, "heads": 4, "vocab_size": 264}
    made["workload"]["data"] = {"train": made["workload"]["data"]["train"], "tokenizer": "byte"}
    made["training"] |= {"precision": "fp64", "micro_batch": 1, "global_batch": 4}
    return made


@pytest.mark.slow
def test_ranks_that_no_node_holds_together_any_more(three: Served, spec: Spec, tmp_path: Path) -> None:
    control = three.run(split_tensors(spec, "control"))
    (tmp_path / "pair").mkdir()
    (tmp_path / "others").mkdir()
    gates, others = Gates(tmp_path / "pair", HELD_AT), Gates(tmp_path / "others", 1)
    job = three.client.submit(split_tensors(spec, "pair", **gates.parts))
    eventually(lambda: len(gates.ranks_at(HELD_AT)) == 2, 120)
    beside = spec("beside", layout={"dp": 2}, topology={"spread": "node"}, **others.parts)
    holder = three.client.submit(beside)  # one slot of each of the two other nodes
    eventually(lambda: len(others.ranks_at(1)) == 2, 120)
    (before,) = three.client.generations(job.id)
    (node,) = {rank.node_name for rank in before.ranks}
    LocalStrikes(three.state).kill_node(node)
    gates.open(HELD_AT)
    done = three.client.wait(job.id, timeout_s=240)
    others.open(1)
    three.client.wait(holder.id, timeout_s=120)

    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    after = three.client.generations(job.id)[-1]
    assert after.world_size == 2 and len({rank.node_name for rank in after.ranks} - {node}) == 2
    assert after.layout.tp == 1 and after.restore["kind"] == "checkpoint", "its only node was all its memory"
    (incident,) = done.incidents
    assert incident.reason in ("agent_lost", "node_lost") and incident.rung == "disk"
    assert incident.steps_lost is not None and incident.steps_lost <= SAVED_EVERY
    ledger = three.client.ledger(job.id)
    assert ledger.exact, ledger.problems
    assert done.digest.samples == control.digest.samples
    kept = {row.step: row.loss for row in three.client.steps(control.id)}
    assert {row.step: row.loss for row in three.client.steps(job.id)} == pytest.approx(kept, rel=TOLERANCE)
