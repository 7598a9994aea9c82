"""What the planner is told of a cluster."""

from dataclasses import replace

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.planner.capacity import room_of, room_taken
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.placement.demand import Demand
from tests.support.auto_layout_specs import cpu_nodes, gpu_nodes
from tests.support.probe_output import said

CPU, GPU = Demand(1, 1, "cpu", 1), Demand(1, 1, "cuda", 4)


def test_nodes_that_take_nothing_are_not_planned_for() -> None:
    first, second, third, fourth = cpu_nodes(2, 4, 8, 1)
    there = [
        first,
        replace(second, closed_reason="cordoned"),
        replace(third, is_draining=True),
        replace(fourth, cpus=0),
    ]
    assert room_of(CPU, there).ranks == (2,)
    with pytest.raises(SpecError, match="no node of the cluster takes a rank of 1 rank of 1 CPU each"):
        room_of(CPU, there[1:])


def test_cores_of_a_rank_compute_together_and_share_the_nodes_memory() -> None:
    one, two = room_of(CPU, cpu_nodes(4)), room_of(replace(CPU, cpus=2), cpu_nodes(4))
    assert (one.total, two.total) == (4, 2)
    assert two.device.flops("fp32") == 2 * one.device.flops("fp32")
    assert (one.device.memory_bytes, two.device.memory_bytes) == (2e9, 4e9)
    assert room_of(replace(CPU, memory_bytes=10**9), cpu_nodes(4)).device.memory_bytes == 1e9


def test_of_different_gpus_the_slowest_counts_and_the_smallest_memory() -> None:
    (smaller,) = gpu_nodes(1, 4, name="A100-40G")
    room = room_of(GPU, [*gpu_nodes(2, name="H100"), replace(smaller, id="another")])
    assert (room.device.name, room.device.memory_bytes, room.domain) == ("A100 40GB", 40e9, 8)


@pytest.mark.parametrize(
    ("label", "say"), [("", "says of its GPUs nothing: set ray.io"), ("TPU-v9", "'TPU-v9', which")]
)
def test_unknown_gpus_are_named(label: str, say: str) -> None:
    with pytest.raises(SpecError, match=say):
        room_of(GPU, gpu_nodes(1, name=label))


def test_groups_of_ranks_stay_on_nodes() -> None:
    room = room_of(CPU, cpu_nodes(3, 5))
    assert room.holds(8, 1) and not room.holds(8, 4) and room.holds(4, 4)
    assert room.holds(12, 4), "more nodes may join, and one that is there holds a group"
    assert not room.holds(12, 6)


def test_nodes_of_one_gpu_domain_are_joined() -> None:
    there = gpu_nodes(4, 4, name="GB200")
    labelled = [replace(each, labels={**each.labels, "ray.io/gpu-domain": "nvl-1"}) for each in there]
    assert (room_of(GPU, there).domain, room_of(GPU, labelled).domain) == (4, 16)


def test_what_a_generation_is_on() -> None:
    room = room_taken(CPU, cpu_nodes(4, 4), {"n1": 3, "n2": 1})
    assert (room.ranks, room.total) == ((3, 1), 4)
    with pytest.raises(SpecError, match="gone"):
        room_taken(CPU, cpu_nodes(4), {"n1": 3, "n2": 1})


def test_what_a_probe_has_measured_of_such_devices_counts() -> None:
    probe = parse_probe_result(said(2), [("a", ("",) * 4), ("b", ("",) * 4)], job_id="job_1", time_s=0.0)
    flops = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    table, measured = room_of(CPU, cpu_nodes(2, 2)), room_of(CPU, cpu_nodes(2, 2), [probe])
    assert measured.device.flops("fp32") == pytest.approx(flops) != table.device.flops("fp32")
    assert measured.cluster(4).network_bytes_s == measured.there.network_bytes_s != table.cluster(4).network_bytes_s
    assert measured.device.memory_bytes == table.device.memory_bytes, "the nodes say how much there is"
    assert room_taken(CPU, cpu_nodes(2, 2), {"n1": 2}, [probe]).there.probe is probe
    assert room_of(GPU, gpu_nodes(1), [probe]) == room_of(GPU, gpu_nodes(1)), "other devices are as the table says"
