"""Tests of the gaps that the resize benchmark computes from steps."""

from typing import Any

import pytest

from benchmarks.resize import Change, change_in, changes_of, result


def step(at: float, number: int, generation: int) -> dict[str, Any]:
    return {"time_s": at, "step": number, "generation": generation}


def test_a_gap_lasts_from_the_last_old_step_to_the_first_new_step() -> None:
    rows = [step(1.0, 1, 1), step(1.2, 2, 1), step(2.0, 3, 2), step(2.1, 4, 2), step(2.6, 5, 3)]
    lost = [{"generation": 1, "steps_lost": 0}, {"generation": 2, "steps_lost": 1}]
    first, second = changes_of(rows, {1: 4, 2: 6, 3: 3}, lost)
    assert (first.before, first.after, first.steps_lost) == (4, 6, 0) and first.gap_s == pytest.approx(0.8)
    assert (second.before, second.after, second.steps_lost) == (6, 3, 1) and second.gap_s == pytest.approx(0.5)


def test_steps_that_ray_train_repeats_count_as_lost_and_not_as_new() -> None:
    noted = [
        {"time_s": at, "step": number, "ranks": ranks}
        for at, number, ranks in ((1.0, 11, 4), (1.5, 12, 4), (20.0, 11, 6), (20.5, 12, 6), (21.0, 13, 6))
    ]
    found = change_in(noted)
    assert (found.gap_s, found.gap_to_new_s, found.steps_lost) == (18.5, 19.5, 2)


def test_the_ratio_uses_the_resize_that_both_arms_perform() -> None:
    ours = [Change("regroup", 4, 6, gap, gap, 0) for gap in (0.5, 1.0, 3.0)]
    document = result([*ours, Change("regroup", 6, 3, 0.1, 0.1, 0), Change("ray_train", 4, 6, 20.0, 21.0, 4)])
    assert document["ratio_ray_train"] == 20.0
    assert document["gap_p50_s"] == 0.75 and document["steps_lost_max"] == 0
    assert document["arms"]["ray_train"]["steps_lost_max"] == 4
