"""Number of steps between snapshots for the spec's `auto`."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.workers.rank.snapshot_interval import SHARE, SnapshotInterval


def trained(interval: SnapshotInterval, steps: int, cost: Callable[[int], float], slower_s: float = 0.0) -> list[int]:
    """Simulate steps of one second, each stalled by the previous snapshot. Return the steps with a snapshot."""
    kept, newest, before_s = list[int](), 0, 0.0
    for step in range(1, steps + 1):
        took_s = 1.0 + (slower_s if newest == step - 1 else 0.0) + before_s
        stall_s = 0.0
        if interval.is_due(step, newest):
            newest, stall_s = step, cost(step)
            kept.append(step)
        interval.learn(took_s, stall_s, before_s)
        before_s = stall_s
    return kept


@pytest.mark.parametrize(("cost_s", "every"), [(0.001, 1), (0.01, 1), (0.05, 5), (0.2, 20), (50.0, 100)])
def test_it_costs_its_share_at_most_and_no_step_more_apart_than_that_needs(cost_s: float, every: int) -> None:
    interval = SnapshotInterval(None, is_async=False)
    kept = trained(interval, 600, lambda _: cost_s)
    assert interval.every_steps == every
    assert kept[:5] == [1, 2, 3, 4, 5], "before it knows, each step is kept"
    assert {after - before for before, after in pairwise(kept[8:])} == {every}


@settings(max_examples=50)
@given(st.floats(0.0001, 2.0))
def test_whatever_it_costs_it_stays_within_its_share(cost_s: float) -> None:
    interval = SnapshotInterval(None, is_async=False)
    trained(interval, 60, lambda _: cost_s)
    assert 2 * cost_s / (interval.every_steps + 2 * cost_s) <= SHARE or interval.every_steps == 100


def test_one_slow_copy_changes_nothing_and_lasting_slowness_does() -> None:
    interval = SnapshotInterval(None, is_async=False)
    trained(interval, 40, lambda step: 1.0 if step == 20 else 0.01)
    assert interval.every_steps == 1
    trained(interval, 40, lambda _: 0.1)
    assert interval.every_steps == 10


def test_it_comes_back_only_when_that_costs_clearly_less() -> None:
    interval = SnapshotInterval(None, is_async=False)
    trained(interval, 100, lambda _: 0.05)
    trained(interval, 100, lambda _: 0.037)
    assert interval.every_steps == 5, "four steps would do, but barely"
    trained(interval, 100, lambda _: 0.025)
    assert interval.every_steps == 4


def test_slower_training_during_a_copy_counts_for_asynchronous_copies() -> None:
    beside = SnapshotInterval(None, is_async=True)
    trained(beside, 200, lambda _: 0.03, slower_s=0.07)
    assert beside.every_steps == 5
    before = SnapshotInterval(None, is_async=False)
    trained(before, 200, lambda _: 0.03, slower_s=0.07)
    assert before.every_steps == 3, "of a copy that is whole before training goes on the wait tells all"


def test_a_fixed_interval_does_not_change() -> None:
    interval = SnapshotInterval(3, is_async=False)
    assert trained(interval, 20, lambda _: 5.0) == [3, 6, 9, 12, 15, 18]
    assert SnapshotInterval(3, is_async=False).is_due(6, newest=5), "the steps it divides, whatever was kept between"
