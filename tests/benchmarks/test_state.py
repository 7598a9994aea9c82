"""Tests of the figures that the state benchmark computes, and a run of the parts that need no cluster."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import state
from benchmarks.state import result, slope

LIMITS = {"memcpy_bytes_per_s": 10e9}
STORED = {
    "checkpoint_bytes": 2_000_000_000, "write_s": 2.5, "blocked_s": (0.1, 0.3, 0.2), "restored_s": 1.0, "read_s": 1.0,
    "read_bytes_per_s": 4e9, "dd_bytes_per_s": 1e9,
}  # fmt: skip


def job(state_gb: float, restored_s: float) -> dict[str, Any]:
    return {"state_bytes": state_gb * 1e9, "kill_to": {"restored": restored_s}, "stall_fraction": 0.01 * state_gb}


def test_the_slope_is_that_of_the_line_through_all_points() -> None:
    assert slope([(1.0, 0.5), (4.0, 1.4)]) == pytest.approx(0.3)
    assert slope([(1.0, 0.4), (1.0, 0.6), (4.0, 1.3), (4.0, 1.5)]) == pytest.approx(0.3)


def test_ratios_to_the_limits_and_to_torch() -> None:
    document = result({
        "limits": LIMITS,
        "snapshot": {"bytes_per_s": 6e9},
        "checkpoint": [
            {**STORED, "write_s": 9.0, "restored_s": 9.0, "read_s": 9.0}, STORED,
            {**STORED, "write_s": 2.0, "restored_s": 0.5, "read_s": 0.5},
        ],
        "peer": {"fetch_to_socket": 0.7, "mirror_to_socket": 0.65},
        "dcp": {"blocked_s": (5.0, 0.5, 0.4), "restored_s": 2.0},
        "recovery": [job(1, 0.5), job(4, 1.4)],
        "reshard": [
            {"bytes_over_minimum": 1.001, "node_memory_over_own": 1.2},
            {"bytes_over_minimum": 1.0, "node_memory_over_own": 1.25},
        ],
        "unchanged": {"bytes_ratio": 0.11},
    })  # fmt: skip
    expected = {"snapshot_to_memcpy": 0.6, "fetch_to_socket": 0.65, "write_to_disk": 0.8, "read_to_disk": 0.5}
    assert document["ratio"] == pytest.approx(expected)
    assert document["ratio_dcp"] == pytest.approx({"blocked": 0.2 / 0.45, "restored": 0.5})
    assert document["restore_slope_s_per_gb"] == pytest.approx(0.3)
    assert document["first_snapshots_stall_fraction"] == pytest.approx(0.01), "at the first size"
    assert document["reshard"] == {"bytes_over_minimum": 1.001, "node_memory_over_own": 1.25}, "the worst change"
    assert document["unchanged"] == {"bytes_ratio": 0.11}


def test_a_figure_without_its_parts_is_left_out() -> None:
    document = result({"limits": LIMITS, "recovery": [job(1, 0.5), job(1, 0.6)]})
    assert document["ratio"] == document["ratio_dcp"] == {}
    assert "restore_slope_s_per_gb" not in document, "one size has no slope"
    assert not {"reshard", "unchanged"} & document.keys()


def test_the_parts_that_need_no_cluster_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    arguments = ["--json", str(path), "--trials", "1", "--gb", "0.02", "--parts", "limits,snapshot"]
    monkeypatch.setattr(sys, "argv", ["state", *arguments])
    assert state.main() == 0
    stored = json.loads(path.read_text())
    assert stored["failures"] == [] and stored["sizes_gb"] == [0.02]
    assert stored["ratio"]["snapshot_to_memcpy"] > 0
    assert stored["parts"]["limits"]["memcpy_bytes_per_s"] > 0
