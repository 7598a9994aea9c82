"""State of each rank, from its place, its report and the reports of slow ranks."""

from typing import Any

import pytest

from regroup.service.operations.ranks import RankState, view_ranks

PLACES = [{"rank": rank, "node_id": "n0", "node_name": "a", "local_rank": rank, "device": rank} for rank in range(4)]


def states(reports: dict[str, Any], stragglers: dict[int, bool] | None = None, step_s: float = 1.0) -> list[str]:
    found = view_ranks(1, list(reversed(PLACES)), reports, stragglers or {}, step_s)
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3]
    return [str(each.state) for each in found.ranks]


def reports(*works: float) -> dict[str, Any]:
    return {str(rank): [5, "forward", work, 0.0, 0.1] for rank, work in enumerate(works)}


def test_ranks_that_wait_for_a_slow_one() -> None:
    assert states(reports(0.2, 0.2, 0.2, 0.9)) == ["waits", "waits", "waits", "slow"]
    assert states(reports(0.7, 0.7, 0.7, 0.7)) == ["works"] * 4


def test_a_small_difference_is_not_slow() -> None:
    assert states(reports(0.010, 0.010, 0.010, 0.028), step_s=0.03)[3] == "works"
    assert states(reports(0.010, 0.010, 0.010, 0.031), step_s=0.03)[3] == "slow"


def test_the_report_of_the_supervisor_decides() -> None:
    assert states(reports(0.7, 0.7, 0.7, 0.7), {1: False, 2: True}) == ["works", "slow", "crowded", "works"]


def test_a_rank_behind_the_others_and_one_without_a_report() -> None:
    found = {"0": [5, "forward"], "1": [4, "backward"], "2": [5, "forward"]}
    assert states(found) == ["works", "behind", "works", "unknown"]


@pytest.mark.parametrize(("stalled_s", "state"), [(0.2, "works"), (1.9, "works"), (2.0, "behind"), (60.0, "behind")])
def test_a_node_that_reported_earlier_is_not_behind(stalled_s: float, state: str) -> None:
    found = reports(0.7, 0.7, 0.7, 0.7) | {"1": [3, "backward", 0.7, 0.0, stalled_s]}
    assert states(found)[1] == state


def test_the_figures_of_a_rank() -> None:
    found = view_ranks(3, PLACES, reports(0.2, 0.2, 0.4, 0.9), {}, 1.0)
    assert (found.generation, found.median_work_s, found.step_s) == (3, pytest.approx(0.3), 1.0)
    last = found.ranks[3]
    assert (last.node, last.device, last.work_s, last.ready_s, last.stalled_s) == ("a", "3", 0.9, 0.0, 0.1)
    assert (last.wait_s, last.factor) == (pytest.approx(0.1), pytest.approx(3.0))


def test_work_that_is_not_measured_yet_is_not_zero() -> None:
    first = view_ranks(1, PLACES, reports(0, 0, 0, 0), {}, 1.0).ranks[0]
    assert (first.work_s, first.wait_s, first.factor, first.state) == (None, None, None, RankState.WORKS)


@pytest.mark.parametrize("damaged", [1, "text", [], ["x", "forward"], [1, "forward", 1], [1, "f", float("nan"), 0, 0]])
def test_a_damaged_report_counts_as_none(damaged: Any) -> None:
    assert states({**reports(0.7, 0.7, 0.7, 0.7), "1": damaged})[1] == "unknown"
