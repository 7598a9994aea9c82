"""Growing and shrinking without being asked: only what is worth it, and not to and fro."""

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


def test_it_takes_the_room_there_is() -> None:
    assert choose_growth(JOB, LADDER, 8) == 8
    assert choose_growth(JOB, LADDER, 7) == 6
    assert choose_growth(JOB, LADDER, 5) is None and choose_growth(JOB, LADDER, 4) is None
    assert choose_growth(replace(JOB, steps_left=None), LADDER, 8) == 8


def test_a_job_that_is_almost_over_stays_as_it_is() -> None:
    assert choose_growth(replace(JOB, steps_left=20), LADDER, 8) == 8, "10 s of work become 5.6 s"
    assert choose_growth(replace(JOB, steps_left=10), LADDER, 8) is None
    assert choose_growth(replace(JOB, resize_costs_s=(1.0, 60.0, 70.0)), LADDER, 8) == 8
    assert choose_growth(replace(JOB, steps_left=200, resize_costs_s=(1.0, 60.0, 70.0)), LADDER, 8) is None


def test_what_a_change_costs_is_taken_as_high_until_one_was_seen() -> None:
    assert choose_growth(replace(JOB, steps_left=40, resize_costs_s=()), LADDER, 8) is None
    assert choose_growth(replace(JOB, steps_left=40), LADDER, 8) == 8


def test_a_size_that_brought_little_is_not_taken_again() -> None:
    assert choose_growth(replace(JOB, rates={4: 2.0, 8: 2.4}), LADDER, 8) is None
    assert choose_growth(replace(JOB, rates={4: 2.0, 8: 2.4}), LADDER, 6) is None, "what is seen of 8 is expected of 6"
    assert choose_growth(replace(JOB, rates={4: 2.0, 2: 1.05}), LADDER, 8) == 8


@pytest.mark.parametrize("held_s", [0.0, MIN_RESIZE_INTERVAL_S - 1])
def test_nodes_that_come_and_go_are_answered_once(held_s: float) -> None:
    assert choose_growth(replace(JOB, since_resize_s=held_s), LADDER, 8) is None
    assert choose_growth(replace(JOB, since_capacity_s=CAPACITY_SETTLED_S - 1), LADDER, 8) is None


def test_rates_that_were_not_seen_are_expected_from_those_that_were() -> None:
    serial, shared = 0.1, 0.8
    rates = {degree: 1 / (serial + shared / degree) for degree in (2, 4)}
    assert expected_rate(rates, 4, 8) == pytest.approx(1 / (serial + shared / 8))
    assert expected_rate({4: 2.0}, 4, 8) == pytest.approx(3.6)
    assert expected_rate({4: 2.0, 2: 2.5}, 4, 8) == 2.0, "more ranks were slower"


def test_without_another_node_the_largest_that_fits_is_taken() -> None:
    assert choose_shrink(LADDER, 4, 3) == 2
    assert choose_shrink(LADDER, 4, 4) == 2, "that is what it had"
    assert choose_shrink((4, 8), 4, 3) is None


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(1, 16), st.floats(0.01, 100.0), min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.integers(0, 20),
)
def test_it_grows_into_the_room_and_only_if_it_is_over_sooner(
    rates: dict[int, float], steps_left: int, room: int
) -> None:
    now = next(iter(rates))
    job = replace(JOB, degree=now, rates=rates, steps_left=steps_left)
    degree = choose_growth(job, range(1, 17), room)
    if degree is not None:
        assert now < degree <= room
        after_s = steps_left / expected_rate(rates, now, degree) + job.resize_costs_s[0]
        assert after_s < steps_left / rates[now]
