"""Host memory of a job on its nodes: the need of its ranks, and the remedy if a node has less."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import JobCapacity, find_capacity
from regroup.service.planner.host_memory import (
    HostMemory,
    describe_host_memory,
    describe_shortage,
    find_host_memory,
    host_memory_from,
)
from regroup.service.policy.placement.demand import Demand
from regroup.service.spec.job import JobSpec, parse_spec
from tests.support.inputs.auto_layout_specs import LLAMA_7B, auto_json, cpu_nodes, gpu_nodes

SHARDED = Layout(dp_shard=16)


def spec_of(device: str, mirror: str = "auto", model: dict[str, Any] = LLAMA_7B) -> JobSpec:
    layout = {"dp": 16, "data_parallel": "fsdp"}
    return parse_spec({**auto_json(layout, model, device, micro_batch=1), "snapshot": {"mirror": mirror}})


def a100s(nodes: int, memory_bytes: float = 1e12) -> JobCapacity:
    found = [replace(node, memory_bytes=int(memory_bytes)) for node in gpu_nodes(nodes)]
    return find_capacity(Demand(1, 1, "cuda", 1), found)


def test_each_rank_has_two_sets_of_its_state_and_two_of_another_one() -> None:
    memory = find_host_memory(spec_of("cuda"), SHARDED, a100s(2))
    assert (memory.ranks, memory.sets, memory.training_bytes, memory.node_bytes) == (8, 4, 0.0, 1e12)
    assert memory.rank_bytes == pytest.approx(4 * 12 * 6.74e9 / 16, rel=0.01)
    assert memory.needed_bytes == 8 * memory.rank_bytes and memory.fits
    assert describe_host_memory(memory) == "20.2 GB per rank: 4 sets of 5.05 GB for snapshots and mirrors"


@pytest.mark.parametrize(("mirror", "nodes"), [("off", 2), ("auto", 1)])
def test_a_job_without_mirrors_needs_half_of_it(mirror: str, nodes: int) -> None:
    layout = Layout(dp_shard=8 * nodes)
    memory = find_host_memory(spec_of("cuda", mirror), layout, a100s(nodes))
    assert memory.sets == 2 and memory.rank_bytes == pytest.approx(2 * 12 * 6.74e9 / (8 * nodes), rel=0.01)
    assert describe_host_memory(memory).endswith("GB for snapshots")


def test_ranks_on_cpus_also_train_in_host_memory() -> None:
    there = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(8, 8))
    memory = find_host_memory(spec_of("cpu", model={"dim": 64, "layers": 4, "heads": 4}), SHARDED, there)
    assert memory.training_bytes > 0 and memory.node_bytes == 8e9
    assert memory.needed_bytes == 8 * (memory.rank_bytes + memory.training_bytes)
    assert "for training" in describe_host_memory(memory)


def test_a_shortage_names_need_memory_and_remedy() -> None:
    short = find_host_memory(spec_of("cuda"), SHARDED, a100s(2, 1e11))
    assert not short.fits
    assert describe_shortage(short) == (
        "8 ranks of a node need 162 GB of host memory (20.2 GB per rank: 4 sets of 5.05 GB for snapshots and mirrors), "
        "and the smallest node has 100 GB: set snapshot.mirror: off, use fewer ranks on each node, or a layout that "
        "divides the state among more ranks"
    )
    assert describe_shortage(replace(short, node_bytes=0.0)) == "", "the memory of the node is unknown"
    alone = find_host_memory(spec_of("cuda", "off"), SHARDED, a100s(2, 5e10))
    assert "snapshot.mirror" not in describe_shortage(alone) and not alone.fits


def test_a_stored_need_is_read_again() -> None:
    memory = HostMemory(8, 4, 1e9, 0.0, 1e12)
    assert host_memory_from({"host_memory": asdict(memory)}) == memory


@pytest.mark.parametrize("stored", [{}, {"host_memory": 3}, {"host_memory": {"ranks": 8}},
                                    {"host_memory": {**asdict(HostMemory(8, 4, 1e9, 0.0, 1e12)), "sets": "x"}},
                                    {"host_memory": asdict(HostMemory(8, 0, 1e9, 0.0, 1e12))}])  # fmt: skip
def test_a_damaged_need_is_unknown(stored: dict[str, Any]) -> None:
    assert host_memory_from(stored) is None
