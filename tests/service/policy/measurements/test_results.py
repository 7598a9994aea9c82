"""Results of a probe by topology level. Slow nodes and slow links are distinguished."""

from typing import Any

import pytest

from regroup.service.domain.topology import Level
from regroup.service.policy.measurements.anomalies import level_crossed
from regroup.service.policy.measurements.parse import parse_probe_result
from regroup.service.policy.measurements.results import ProbeResult
from tests.support.inputs.probe_output import LINK, probe_result

Domains = tuple[str, ...]
NOWHERE: Domains = ("", "", "", "")


def probed(found: dict[str, Any], domains: list[Domains] | None = None) -> ProbeResult:
    places = domains or [NOWHERE] * len(found["nodes"])
    nodes = [(f"n{number}", each) for number, each in enumerate(places)]
    return parse_probe_result(found, nodes, job_id="job_1", time_s=1000.0)


def anomalies_of(measured: ProbeResult) -> list[tuple[str, tuple[str, ...], str]]:
    return [(each.kind, each.nodes, each.measure) for each in measured.anomalies]


def test_a_path_crosses_the_largest_domain_that_its_ends_do_not_share() -> None:
    here = ("z", "b", "r", "d")
    assert level_crossed(here, here) is Level.NODE
    assert level_crossed(here, ("z", "b", "r", "e")) is Level.GPU_DOMAIN
    assert level_crossed(here, ("z", "b", "s", "d")) is Level.RACK
    assert level_crossed(here, ("y", "b", "r", "d")) is Level.ZONE
    assert level_crossed(NOWHERE, NOWHERE) is Level.GPU_DOMAIN, "a node without labels is its own domain"
    assert level_crossed(("", "", "r", ""), ("", "", "s", "")) is Level.RACK


def test_pairs_measure_the_levels_that_they_cross_and_rings_measure_nodes() -> None:
    racks = [("", "", rack, "") for rack in ("left", "left", "right", "right")]
    across = dict.fromkeys(((0, 2), (0, 3), (1, 2)), (200000000.0, 0.0004)) | {(1, 3): (0.1e9, 8e-4)}
    found = probed(probe_result(4, links=across), racks)
    assert [(each.level, each.bytes_s, each.latency_s, each.slowest_bytes_s, each.pairs) for each in found.levels] == [
        (Level.DEVICE, 3e9, 5e-5, 3e9, 0),
        (Level.GPU_DOMAIN, *LINK, LINK[0], 2),
        (Level.RACK, 0.2e9, 4e-4, 0.1e9, 4),
    ]
    assert (found.ranks, found.kind, found.time_s, found.nodes[2].domains) == (8, "cpu", 1000.0, racks[2])


def test_a_single_node_has_only_measurements_of_its_devices() -> None:
    alone = {**probe_result(1, 4), "rings": {"all": [4, 2e9, 1e-5]}}
    assert [(each.level, each.bytes_s) for each in probed(alone).levels] == [(Level.DEVICE, 2e9)]


def test_bus_bandwidth_has_the_definition_of_nccl_tests() -> None:
    (reduced,) = probed(probe_result(2)).collectives
    assert reduced.bus_bytes_s == pytest.approx(2 * 3 / 4 * 2**20 / 4e-3)


def test_a_slow_link_is_not_an_anomaly_of_its_nodes() -> None:
    found = probed(probe_result(5, links={(1, 3): (0.4e9, 1e-4)}))
    assert anomalies_of(found) == [("link", ("n1", "n3"), "bandwidth")]
    assert "40%" in found.anomalies[0].message


def test_a_node_whose_links_are_all_slow_is_the_only_anomaly() -> None:
    slow = dict.fromkeys(((0, 2), (1, 2), (2, 3), (2, 4)), (1000000000.0, 0.0005))
    assert anomalies_of(probed(probe_result(5, links=slow))) == [("node", ("n2",), "latency")]


def test_a_much_slower_link_of_a_slow_node_is_a_second_anomaly() -> None:
    slow = dict.fromkeys(((0, 2), (1, 2), (2, 3), (2, 4), (2, 5)), (500000000.0, 0.0001)) | {(2, 4): (0.1e9, 1e-4)}
    assert anomalies_of(probed(probe_result(6, links=slow))) == [
        ("node", ("n2",), "bandwidth"),
        ("link", ("n2", "n4"), "bandwidth"),
    ]


def test_a_link_is_compared_with_links_of_its_level() -> None:
    racks = [("", "", rack, "") for rack in ("a", "a", "a", "b", "b", "b")]
    across = {(one, other): (0.1e9, 9e-4) for one in range(3) for other in range(3, 6)}
    assert anomalies_of(probed(probe_result(6, links=across), racks)) == []


def test_a_node_with_slow_or_wrong_computations_is_an_anomaly() -> None:
    found = probed(probe_result(4, flops=[5e10, 5.1e10, 2e10, 5e10], wrong=[3]))
    assert anomalies_of(found) == [("node", ("n1",), "result"), ("node", ("n2",), "fp32")]


@pytest.mark.parametrize("broken", [{}, {"nodes": 3}, {**probe_result(2), "pairs": [[0, 9, 1.0, 1.0]]}])
def test_an_invalid_result_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        probed(broken) if "nodes" in broken and broken["nodes"] != 3 else parse_probe_result(
            broken, [], job_id="", time_s=0.0
        )
