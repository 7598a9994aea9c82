"""The probe on real ranks: everything is measured, checked, and survives a lost rank."""

import signal
from typing import Any

import pytest

from regroup.workers.contract.rank_config import RankConfig, SnapshotConfig, TrainingConfig
from tests.support.inputs.rank_configs import changed, fault

ENTRY = "probing_loop:on_two_nodes"
STAGES = 8


@pytest.fixture
def config() -> RankConfig:
    return RankConfig(
        training=TrainingConfig(global_batch=4, micro_batch=1, steps=STAGES), snapshot=SnapshotConfig(every_steps=1)
    )


def test_four_ranks_on_two_nodes_measure_everything_and_a_lost_one_costs_one_step(
    agent: Any, config: RankConfig
) -> None:
    layout = {"dp_replicate": 4}
    config = changed(config, faults=[fault(1, 3, "sigkill", "optimizer")])
    faulty = agent.run(config, 4, "probe", entry=ENTRY, layout=layout, show_errors=False)
    assert faulty.codes[1] == -signal.SIGKILL
    state = {"source": "memory", "step": 2, "generation": 1}
    after = agent.run(config, 4, "probe", entry=ENTRY, layout=layout, generation=2, restore=state, faults_fired=[0])
    assert set(after.codes) == {0}, after.errors
    assert [row["step"] for row in after.rows] == [3, 4, 5, 6, 7, 8]
    found = after.result["probe"]
    assert found["kind"] == "cpu" and [node["ranks"] for node in found["nodes"]] == [[0, 1], [2, 3]]
    for node in found["nodes"]:
        assert set(node["flops"]) == {"fp32", "bf16", "fp64"} and min(node["flops"].values()) > 1e6
        assert node["memory_bytes_s"] > 1e6
    assert {(dtype, side) for dtype, side, _ in found["matmuls"]} == {
        (dtype, side) for dtype in ("fp32", "bf16", "fp64") for side in (32, 128)
    }
    names = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
    assert {(name, scope, ranks, size) for name, scope, ranks, size, _, _ in found["collectives"]} == {
        (name, scope, ranks, size)
        for name in names
        for scope, ranks in (("all", 4), ("node", 2))
        for size in (4096, 65536)
    }
    assert all(seconds > 0 and wrong == [] for *_, seconds, wrong in found["collectives"])
    assert {scope: ring[0] for scope, ring in found["rings"].items()} == {"all": 4, "node": 2}
    ((first, second, bytes_s, latency_s),) = found["pairs"]
    assert (first, second) == (0, 1) and bytes_s > 1e6 and 0 < latency_s < 1
    assert all(seconds > 0 for *_, seconds in found["blocks"]) and found["alone_flops"] > 1e6
    assert 50e6 < found["rank_bytes"] < 2e9
    assert {(kind, layers, count) for kind, layers, count, _ in found["steps"]} == {
        (kind, 2, 2 if kind == "pp" else 1) for kind in ("ddp", "fsdp", "tp", "pp")
    }
    loads = {kind: seconds for kind, *_, seconds in found["loads"]}
    empty = {kind: seconds for kind, *_, seconds in found["steps"]}
    assert loads.keys() == empty.keys() and loads["ddp"] > empty["ddp"]


def test_a_rank_that_gets_something_else_than_it_must_is_named(agent: Any, config: RankConfig) -> None:
    entry = "probing_loop:with_one_that_adds_wrongly"
    found = agent.run(config, 4, "wrong", entry=entry, layout={"dp_replicate": 4}).result["probe"]
    wrong = {(name, tuple(ranks)) for name, *_, ranks in found["collectives"] if ranks}
    assert wrong == {("all_reduce", (2,))}
