"""Scenarios by the command that people type: all invariants hold, the report says so, and nothing is left running."""

from pathlib import Path

import pytest
from house.chaos_command import chaos

pytestmark = pytest.mark.slow


def test_a_rank_the_server_and_a_snapshot(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", "segfault", "server-killed", "snapshot-flipped", "--seed", "3")
    assert [(each["name"], each["problems"]) for each in report["scenarios"]] == [
        ("segfault", []), ("server-killed", []), ("snapshot-flipped", []),
    ]  # fmt: skip
    assert code == 0
    assert [each["incidents"] for each in report["scenarios"]] == [["rank_exit"], [], ["rank_exit"]]
    (fallen,) = report["scenarios"][1]["fallen"]
    assert fallen["do"] == "kill_server" and fallen["seen_again_s"] > fallen["time_s"]


def test_a_loss_that_stands_out_and_a_disk_that_fails(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", "loss-spiked", "disk-full", "disk-broken", "--seed", "2")
    assert [(each["name"], each["problems"]) for each in report["scenarios"]] == [
        ("loss-spiked", []), ("disk-full", []), ("disk-broken", []),
    ]  # fmt: skip
    assert code == 0
    assert [each["incidents"] for each in report["scenarios"]] == [["loss_spike"], [], []]


def test_connections_that_end_stand_still_and_lose_packets(tmp_path: Path, no_leaks: None) -> None:
    names = ("connections-cut", "connections-silent", "packets-lost")
    code, report = chaos(tmp_path, "run", *names, "--seed", "1")
    assert [(each["name"], each["problems"]) for each in report["scenarios"]] == [(name, []) for name in names]
    assert code == 0
    assert [each["incidents"] for each in report["scenarios"]] == [["rank_exit"], ["hang"], []]


def test_a_supervisor_that_dies_in_a_recovery(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", "14", "37", "--seed", "1")
    assert [(each["name"], each["problems"]) for each in report["scenarios"]] == [
        ("supervisor-killed-in-recovery", []), ("cancelled-in-recovery", []),
    ]  # fmt: skip
    assert code == 0


def test_a_frozen_node_is_replaced_and_thawed(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", "16b")
    (outcome,) = report["scenarios"]
    assert outcome["problems"] == [] and code == 0
    assert outcome["rungs"] == ["spare"]


@pytest.mark.soak
def test_a_soak_ends_with_the_result_of_its_control_run(tmp_path: Path, no_leaks: None) -> None:
    mix = ["--mix", "rank_exit=0.7", "--mix", "supervisor=0.3"]
    code, report = chaos(tmp_path, "soak", "--minutes", "1", "--seed", "1", *mix)
    assert report["soak"]["problems"] == [] and code == 0
    assert report["soak"]["goodput"] > 0.5
