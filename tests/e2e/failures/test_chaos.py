"""Every scenario through the command line: all invariants hold, the report shows it, and no process remains."""

from pathlib import Path

import pytest

from regroup.service.chaos.scenarios import SCENARIOS
from tests.support.jobs.chaos_command import chaos

pytestmark = pytest.mark.slow


def test_a_job_survives_every_injected_fault(tmp_path: Path, no_leaks: None) -> None:
    code, report = chaos(tmp_path, "run", "--all", "--seed", "1")
    outcomes = {each["name"]: each for each in report["scenarios"]}
    assert {name: each["problems"] for name, each in outcomes.items() if each["problems"]} == {}
    assert code == 0
    assert list(outcomes) == [scenario.name for scenario in SCENARIOS]
    assert all(len(each["invariants"]) == 8 for each in outcomes.values())
    (injected,) = outcomes["server-killed"]["injected"]
    assert injected["do"] == "kill_server" and injected["resumed_s"] > injected["time_s"]


@pytest.mark.soak
def test_a_soak_ends_with_the_result_of_its_control_run(tmp_path: Path, no_leaks: None) -> None:
    mix = ["--mix", "rank_exit=0.7", "--mix", "supervisor=0.3"]
    code, report = chaos(tmp_path, "soak", "--minutes", "1", "--seed", "1", *mix)
    assert report["soak"]["problems"] == [] and code == 0
    assert report["soak"]["goodput"] > 0.5
