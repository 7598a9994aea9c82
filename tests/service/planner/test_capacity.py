"""Capacity of a cluster for a job."""

from dataclasses import replace

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.planner.capacity import find_capacity, generation_capacity
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.placement.demand import Demand
from tests.support.inputs.auto_layout_specs import cpu_nodes, gpu_nodes
from tests.support.inputs.probe_output import probe_result

CPU, GPU = Demand(1, 1, "cpu", 1), Demand(1, 1, "cuda", 4)


def test_closed_and_full_nodes_have_no_capacity() -> None:
    first, second, third, fourth = cpu_nodes(2, 4, 8, 1)
    there = [
        first,
        replace(second, closed_reason="cordoned"),
        replace(third, is_draining=True),
        replace(fourth, cpus=0),
    ]
    assert find_capacity(CPU, there).ranks == (2,)
    with pytest.raises(SpecError, match="no node of the cluster fits 1 rank of 1 CPU each"):
        find_capacity(CPU, there[1:])


def test_a_cpu_rank_has_its_cores_and_a_share_of_the_memory() -> None:
    one, two = find_capacity(CPU, cpu_nodes(4)), find_capacity(replace(CPU, cpus=2), cpu_nodes(4))
    assert (one.total, two.total) == (4, 2)
    assert two.device.flops("fp32") == 2 * one.device.flops("fp32")
    assert (one.device.memory_bytes, two.device.memory_bytes) == (2e9, 4e9)
    assert find_capacity(replace(CPU, memory_bytes=10**9), cpu_nodes(4)).device.memory_bytes == 1e9


def test_mixed_gpus_count_as_the_slowest_with_the_smallest_memory() -> None:
    (smaller,) = gpu_nodes(1, 4, name="A100-40G")
    capacity = find_capacity(GPU, [*gpu_nodes(2, name="H100"), replace(smaller, id="another")])
    assert (capacity.device.name, capacity.device.memory_bytes, capacity.domain) == ("A100 40GB", 40e9, 8)


@pytest.mark.parametrize(("label", "message"), [("", "has no label ray.io"), ("TPU-v9", "has unknown GPUs 'TPU-v9'")])
def test_unknown_gpus_are_named(label: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        find_capacity(GPU, gpu_nodes(1, name=label))


def test_groups_of_ranks_fit_on_one_node() -> None:
    capacity = find_capacity(CPU, cpu_nodes(3, 5))
    assert capacity.fits(8, 1) and not capacity.fits(8, 4) and capacity.fits(4, 4)
    assert capacity.fits(12, 4), "more nodes may join, and a present node fits a group"
    assert not capacity.fits(12, 6)


def test_nodes_of_one_gpu_domain_form_one_domain() -> None:
    there = gpu_nodes(4, 4, name="GB200")
    labelled = [replace(each, labels={**each.labels, "ray.io/gpu-domain": "nvl-1"}) for each in there]
    assert (find_capacity(GPU, there).domain, find_capacity(GPU, labelled).domain) == (4, 16)


def test_the_capacity_of_a_generation_is_that_of_its_nodes() -> None:
    capacity = generation_capacity(CPU, cpu_nodes(4, 4), {"n1": 3, "n2": 1})
    assert (capacity.ranks, capacity.total) == ((3, 1), 4)
    with pytest.raises(SpecError, match="have left the cluster"):
        generation_capacity(CPU, cpu_nodes(4), {"n1": 3, "n2": 1})


def test_a_probe_of_the_same_devices_replaces_the_table() -> None:
    probe = parse_probe_result(probe_result(2), [("a", ("",) * 4), ("b", ("",) * 4)], job_id="job_1", time_s=0.0)
    flops = max(each.flops for each in probe.matmuls if each.dtype == "fp32")
    table, measured = find_capacity(CPU, cpu_nodes(2, 2)), find_capacity(CPU, cpu_nodes(2, 2), [probe])
    assert measured.device.flops("fp32") == pytest.approx(flops) != table.device.flops("fp32")
    assert measured.cluster(4).network_bytes_s == measured.hardware.network_bytes_s != table.cluster(4).network_bytes_s
    assert measured.device.memory_bytes == table.device.memory_bytes, "the memory size comes from the nodes"
    assert generation_capacity(CPU, cpu_nodes(2, 2), {"n1": 2}, [probe]).hardware.probe is probe
    assert find_capacity(GPU, gpu_nodes(1), [probe]) == find_capacity(GPU, gpu_nodes(1)), (
        "other devices keep the values of the table"
    )
