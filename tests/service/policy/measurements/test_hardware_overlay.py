"""Measured values replace values of the hardware table. Other values do not change."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.hardware import LINKS, Device, find_device
from regroup.service.domain.topology import Level
from regroup.service.planner.formulas import ring_all_reduce_s, ring_half_s
from regroup.service.policy.measurements.hardware_overlay import (
    fit_ring,
    is_probe_of,
    measured_hardware,
    measured_links,
)
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.measurements.results import MeasuredCollective, ProbeResult
from regroup.service.policy.placement.link_speeds import CPU_LINKS, LinkSpeed
from tests.support.inputs.probe_output import probe_result


def probed(racks: str = "ab", **options: Any) -> ProbeResult:
    found = probe_result(len(racks), **options)
    nodes = [(f"n{at}", ("", "", rack, "")) for at, rack in enumerate(racks)]
    return parse_probe_result(found, nodes, job_id="job_1", time_s=1000.0)


def device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def test_without_a_probe_of_the_device_the_table_row_applies() -> None:
    for probes in ([], [probed(kind="cuda")]):
        found = measured_hardware(device("A100"), probes)
        assert (found.device, found.link, found.measured_values) == (device("A100"), LINKS["nvlink3"], ())
        assert (found.devices_per_node, found.network_bytes_s) == (8, 25e9)
    assert is_probe_of(probed(kind="cuda"), device("H100")) and not is_probe_of(probed(kind="cuda"), device("H200"))
    assert not is_probe_of(
        replace(probed(kind="cuda"), device="NVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-40GB"), device("H100")
    )


def test_measured_values_apply_and_are_listed() -> None:
    probe = probed()
    cpu = measured_hardware(device("cpu"), [probe])
    assert cpu.device.flops("fp32") == pytest.approx(5e10) and cpu.device.flops("fp64") == device("cpu").flops("fp64")
    assert cpu.device.memory_bytes_s == 8e9 and cpu.network_bytes_s == 1e9
    figures = {each.name: each for each in cpu.measured_values}
    assert figures["network bytes/s"].value == 1e9 and figures["network bytes/s"].table == 1.25e9
    assert figures["fp32 product FLOP/s"].value == pytest.approx(5e10)
    assert {(each.time_s, each.job_id) for each in cpu.measured_values} == {(1000.0, "job_1")}
    assert not {"fp64 product FLOP/s", "link bytes/s", "devices of a node"} & set(figures), (
        "values of the table, or unknown"
    )


def test_a_gpu_keeps_the_memory_bandwidth_of_its_data_sheet() -> None:
    found = measured_hardware(device("H100"), [probed(kind="cuda")])
    assert found.device.memory_bytes_s == device("H100").memory_bytes_s
    assert found.device.peak_tflops["bf16"] == device("H100").peak_tflops["bf16"]
    assert found.devices_per_node == 2


def test_the_fit_recovers_latency_and_bandwidth_of_a_ring() -> None:
    measured = [
        MeasuredCollective(name, "node", 4, size, duration_s(size, 4, 3e9, 2e-5))
        for name, duration_s in (("all_reduce", ring_all_reduce_s), ("all_gather", ring_half_s))
        for size in (4096, 1 << 20, 64 << 20)
    ]
    latency_s, bandwidth = fit_ring(measured)
    assert (latency_s, bandwidth) == (pytest.approx(2e-5), pytest.approx(3e9))
    one = [MeasuredCollective("all_reduce", "node", 2, 1 << 20, 1e-3)]
    assert fit_ring(one) == (0.0, pytest.approx((1 << 20) / 1e-3))


def test_noise_never_gives_a_negative_latency_or_bandwidth() -> None:
    early = [
        MeasuredCollective("all_gather", "node", 4, size, ring_half_s(size, 4, 1e9, -1e-5))
        for size in (1 << 20, 64 << 20)
    ]
    latency_s, bandwidth = fit_ring(early)
    assert latency_s == 0.0
    assert bandwidth == pytest.approx(1e9, rel=0.05), "all of the time is bandwidth"
    falling = [MeasuredCollective("all_gather", "node", 4, size, s) for size, s in ((1 << 20, 2e-3), (64 << 20, 1e-3))]
    latency_s, bandwidth = fit_ring(falling)
    assert latency_s == 0.0 and bandwidth > 0


def test_an_unmeasured_level_is_never_faster_than_the_levels_inside() -> None:
    table = CPU_LINKS
    assert measured_links(table, None) is table
    slow = measured_links(table, probed("ab", links={(0, 1): (0.1e9, 5e-3)}))
    assert slow[Level.DEVICE] == LinkSpeed(3e9, 5e-5) and slow[Level.RACK] == LinkSpeed(0.1e9, 5e-3)
    assert slow[Level.BLOCK] == LinkSpeed(0.1e9, 5e-3), "the table has 0.15 GB/s"
    assert slow[Level.ZONE].bytes_per_s == table[Level.ZONE].bytes_per_s
    assert slow[Level.NODE] == table[Level.NODE]
    assert list(slow) == list(table)
