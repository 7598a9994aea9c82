"""The reliability report: spreads, causes, losses, parts of the window, nodes."""

from typing import Any

import pytest

from regroup.service.policy.reliability import (
    MOST_BINS,
    Interruption,
    bin_size_s,
    mean_goodput,
    rank_nodes,
    report_incidents,
    spread_of,
)


def incident(at_s: float, reason: str = "rank_exit", devices: int | None = 4, **data: Any) -> Interruption:
    return Interruption("j", "gpt", "vision", 1, "why", at_s, {"reason": reason, **data}, devices, step_s=2.0)


def recovered(at_s: float, total_s: float, reason: str = "rank_exit", **data: Any) -> Interruption:
    phases = {"detect": total_s / 4, "form": total_s / 4, "first_step": total_s / 2, "total": total_s}
    return incident(at_s, reason, durations=phases, **data)


def test_a_spread_has_the_mean_the_median_and_the_95th_percentile() -> None:
    found = spread_of(float(value) for value in range(20, 0, -1))
    assert found is not None
    assert (found.count, found.mean_s, found.median_s, found.p95_s, found.max_s) == (20, 10.5, 10.5, 19.0, 20.0)
    one = spread_of([3.0])
    assert one is not None and (one.mean_s, one.median_s, one.p95_s, one.max_s) == (3.0, 3.0, 3.0, 3.0)
    assert spread_of([]) is None


def test_planned_changes_do_not_count_as_failures() -> None:
    found = report_incidents([recovered(10, 8), recovered(20, 4, "resized"), recovered(30, 4, "drained")], 0, 60)
    assert found.failures == 1 and found.recovery is not None and found.recovery.mean_s == 8
    assert {each.reason: each.is_planned for each in found.causes} == {
        "rank_exit": False, "resized": True, "drained": True,
    }  # fmt: skip
    assert {name: spread.mean_s for name, spread in found.phases.items()} == {"detect": 2, "form": 2, "first_step": 4}
    assert list(found.phases) == ["detect", "form", "first_step"]


def test_the_loss_is_the_time_until_the_next_step_and_in_repeated_steps() -> None:
    assert recovered(0, 900, steps_lost=450).lost_device_hours == pytest.approx(4 * (900 + 900) / 3600)
    assert incident(0, devices=None, durations={"total": 900}).lost_device_hours == 0
    unfinished = incident(0, times={"fault_s": 100.0, "seen_s": 1000.0})
    assert unfinished.total_s is None and unfinished.lost_device_hours == pytest.approx(1.0)
    assert incident(0).lost_device_hours == 0
    assert recovered(0, 900, "suspended").lost_device_hours == 0


def test_causes_with_the_largest_loss_come_first_and_unknown_words_are_one_cause() -> None:
    found = report_incidents(
        [recovered(0, 10), recovered(1, 10), recovered(2, 500, "hang"), recovered(3, 1, "rank 7 said no")], 0, 60
    )
    assert [(each.reason, each.incidents) for each in found.causes] == [("hang", 1), ("rank_exit", 2), ("unknown", 1)]
    assert found.lost_device_hours == pytest.approx(sum(each.lost_device_hours for each in found.causes))


def test_a_window_has_at_most_60_parts_that_contain_each_incident_once() -> None:
    for length_s in (1.0, 59.0, 3600.0, 86_400.0, 31 * 86_400.0, 366 * 86_400.0, 1e9):
        size = bin_size_s(1000.0, 1000.0 + length_s)
        found = report_incidents([incident(1000.0), incident(1000.0 + length_s * 0.999)], 1000.0, 1000.0 + length_s)
        assert len(found.bins) <= MOST_BINS and found.bin_s == size
        assert sum(sum(each.incidents.values()) for each in found.bins) == 2
        assert found.bins[0].start_s == 1000.0
    assert bin_size_s(0, 86_400) == 3600 and bin_size_s(0, 31 * 86_400) == 86_400


def test_a_damaged_record_counts_as_zero() -> None:
    for durations in (None, [1], {"total": "soon"}, {"total": float("nan")}, {"total": True}):
        broken = incident(0, durations=durations, steps_lost="many", times=7)
        assert (broken.total_s, broken.steps_lost, broken.lost_device_hours) == (None, 0, 0)


def test_nodes_with_more_faults_come_first() -> None:
    faults = [("a", "link", 5.0), ("b", "agent_lost", 1.0), ("b", "agent_lost", 3.0), ("c", "device", 9.0)]
    found = rank_nodes(faults, most=2)
    assert [(each.node, each.faults, each.last_s) for each in found] == [
        ("b", {"agent_lost": 2}, 3.0),
        ("c", {"device": 1}, 9.0),
    ]


def test_goodput_is_weighted_by_device_time() -> None:
    assert mean_goodput([(300.0, 1.0), (100.0, 0.5), (999.0, None)]) == pytest.approx(0.875)
    assert mean_goodput([(10.0, None)]) is None and mean_goodput([]) is None
