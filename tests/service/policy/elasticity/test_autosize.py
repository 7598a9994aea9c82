"""Automatic growth and shrinking: only if the benefit exceeds the cost, and without oscillation."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.policy.elasticity.autosize import (
    CAPACITY_SETTLED_S,
    MIN_RESIZE_INTERVAL_S,
    TrainingProgress,
    choose_growth,
    choose_shrink,
    expected_rate,
)

JOB = TrainingProgress(
    degree=4,
    rates={4: 2.0},
    steps_left=1000,
    resize_costs_s=(1.0,),
    since_resize_s=MIN_RESIZE_INTERVAL_S,
    since_capacity_s=CAPACITY_SETTLED_S,
)
LADDER = (1, 2, 4, 6, 8)


def test_a_job_grows_into_the_free_capacity() -> None:
    assert choose_growth(JOB, LADDER, 8) == 8
    assert choose_growth(JOB, LADDER, 7) == 6
    assert choose_growth(JOB, LADDER, 5) is None and choose_growth(JOB, LADDER, 4) is None
    assert choose_growth(replace(JOB, steps_left=None), LADDER, 8) == 8


def test_a_job_near_its_end_does_not_grow() -> None:
    assert choose_growth(replace(JOB, steps_left=20), LADDER, 8) == 8, "10 s of work become 5.6 s"
    assert choose_growth(replace(JOB, steps_left=10), LADDER, 8) is None
    assert choose_growth(replace(JOB, resize_costs_s=(1.0, 60.0, 70.0)), LADDER, 8) == 8
    assert choose_growth(replace(JOB, steps_left=200, resize_costs_s=(1.0, 60.0, 70.0)), LADDER, 8) is None


def test_the_cost_of_a_resize_is_assumed_high_until_it_is_measured() -> None:
    assert choose_growth(replace(JOB, steps_left=40, resize_costs_s=()), LADDER, 8) is None
    assert choose_growth(replace(JOB, steps_left=40), LADDER, 8) == 8


def test_a_size_with_little_benefit_is_not_chosen_again() -> None:
    assert choose_growth(replace(JOB, rates={4: 2.0, 8: 2.4}), LADDER, 8) is None
    assert choose_growth(replace(JOB, rates={4: 2.0, 8: 2.4}), LADDER, 6) is None, (
        "the rate of 6 is predicted from the rate of 8"
    )
    assert choose_growth(replace(JOB, rates={4: 2.0, 2: 1.05}), LADDER, 8) == 8


@pytest.mark.parametrize("since_resize_s", [0.0, MIN_RESIZE_INTERVAL_S - 1])
def test_a_resize_waits_until_the_capacity_is_stable(since_resize_s: float) -> None:
    assert choose_growth(replace(JOB, since_resize_s=since_resize_s), LADDER, 8) is None
    assert choose_growth(replace(JOB, since_capacity_s=CAPACITY_SETTLED_S - 1), LADDER, 8) is None


def test_unknown_rates_are_predicted_from_measured_ones() -> None:
    serial, shared = 0.1, 0.8
    rates = {degree: 1 / (serial + shared / degree) for degree in (2, 4)}
    assert expected_rate(rates, 4, 8) == pytest.approx(1 / (serial + shared / 8))
    assert expected_rate({4: 2.0}, 4, 8) == pytest.approx(3.6)
    assert expected_rate({4: 2.0, 2: 2.5}, 4, 8) == 2.0, "the measured rate falls with more ranks"


def test_without_a_substitute_the_largest_size_that_fits_is_chosen() -> None:
    assert choose_shrink(LADDER, 4, 3) == 2
    assert choose_shrink(LADDER, 4, 4) == 2, "the current size is excluded"
    assert choose_shrink((4, 8), 4, 3) is None


@settings(max_examples=60)
@given(
    st.dictionaries(st.integers(1, 16), st.floats(0.01, 100.0), min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.integers(0, 20),
)
def test_a_job_grows_within_the_capacity_and_only_to_end_earlier(
    rates: dict[int, float], steps_left: int, capacity: int
) -> None:
    now = next(iter(rates))
    job = replace(JOB, degree=now, rates=rates, steps_left=steps_left)
    degree = choose_growth(job, range(1, 17), capacity)
    if degree is not None:
        assert now < degree <= capacity
        after_s = steps_left / expected_rate(rates, now, degree) + job.resize_costs_s[0]
        assert after_s < steps_left / rates[now]
