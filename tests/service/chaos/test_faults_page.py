"""The page docs/faults.md shows stored measurements, and reports missing ones."""

from typing import Any

from regroup.service.chaos.faults_page import render_faults_page
from regroup.service.chaos.scenarios import find_scenario

SCENARIO: dict[str, Any] = {
    "number": "16b", "what": "an earlier description", "n": 3, "passed": 3, "steps_lost_max": 3,
    "causes": [["agent_lost", "spare"]], "detect_s": {"p50": 5.1, "p95": 5.4}, "recover_s": {"p50": 7.25, "p95": 7.75},
}  # fmt: skip


def test_the_page_without_results_reports_them_as_missing() -> None:
    text = render_faults_page({})
    assert "No run is stored." in text and "No run of the benchmark is stored." in text
    assert "| I8 |" in text and "`freeze_node`" in text and "| 22a |" in text


def test_the_page_shows_stored_results() -> None:
    row = {"n": 20, "p50_s": 0.61, "p95_s": 0.8, "steps_lost_max": 1, "measured_on": {"cores": 2}}
    strength = {"regroup": {"n": 5, "p50": 0.55}, "torchft": {"n": 5, "p50": 5.5}}
    soak = {"minutes": 20.0, "goodput_mix": 0.9, "goodput_rank_exits": 0.95, "bitwise_equal": True}
    quiet = {**SCENARIO, "number": "24", "causes": [], "detect_s": None}
    scenarios = {"seeds": [1, 2, 3], "date": "2026-11-22", "measured_on": {"cores": 2}, "rows": [quiet, SCENARIO]}
    peers = {"full_strength_s": strength, "ratio": 10.0}
    text = render_faults_page({"scenarios": scenarios, "rank_exit": row, "soak": soak, "torchft": peers})
    assert "The newest run, 2026-11-22, with seeds 1, 2, 3" in text
    frozen, killed = find_scenario("16b"), find_scenario("24")
    assert frozen is not None and killed is not None
    assert f"| 16b | {frozen.what} | 5.10 / 5.40 s | 7.25 / 7.75 s | 3 | agent_lost, spare | 3 of 3 |" in text
    assert f"| 24 | {killed.what} | – | 7.25 / 7.75 s | 3 | no incident | 3 of 3 |" in text
    assert text.index("| 16b |") < text.index(f"| 24 | {killed.what}"), "in order of their numbers"
    gone = render_faults_page({"scenarios": {**scenarios, "rows": [{**SCENARIO, "number": "99"}]}})
    assert "| 99 | an earlier description |" in gone
    assert "| SIGKILL of a rank → first new step | 20 | 0.61 s | 0.80 s | 1 |" in text
    assert "goodput 0.900 with the mix, 0.950 with rank exits alone" in text and "NOT equal" not in text
    assert "ranks each on 2 cores" in text
    assert "median of 5 in one run: 0.55 s; torchft 0.2.0 with a replacement replica: 5.50 s, 10.0 times" in text
