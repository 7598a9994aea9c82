"""Scenarios by the command that people type: all invariants hold, the report says so, and nothing is left running."""

from pathlib import Path

import pytest
from house.chaos_command import chaos

pytestmark = pytest.mark.slow

INCIDENTS = {
    "segfault": ["rank_exit"],
    "server-killed": [],
    "snapshot-flipped": ["rank_exit"],
    "loss-spiked": ["loss_spike"],
    "disk-full": [],
    "disk-broken": [],
    "connections-cut": ["rank_exit"],
    "connections-silent": ["hang"],
    "packets-lost": [],
    "supervisor-killed-in-recovery": ["rank_exit"],
    "cancelled-in-recovery": ["rank_exit"],
}
"""Scenario → what it comes to."""


def test_what_is_injected_is_survived(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", *INCIDENTS, "node-frozen", "--seed", "1")
    outcomes = {each["name"]: each for each in report["scenarios"]}
    assert {name: each["problems"] for name, each in outcomes.items() if each["problems"]} == {}
    assert code == 0
    assert outcomes.pop("node-frozen")["rungs"] == ["spare"]
    assert {name: each["incidents"] for name, each in outcomes.items()} == INCIDENTS
    (fallen,) = outcomes["server-killed"]["fallen"]
    assert fallen["do"] == "kill_server" and fallen["seen_again_s"] > fallen["time_s"]


@pytest.mark.soak
def test_a_soak_ends_with_the_result_of_its_control_run(tmp_path: Path, no_leaks: None) -> None:
    mix = ["--mix", "rank_exit=0.7", "--mix", "supervisor=0.3"]
    code, report = chaos(tmp_path, "soak", "--minutes", "1", "--seed", "1", *mix)
    assert report["soak"]["problems"] == [] and code == 0
    assert report["soak"]["goodput"] > 0.5
