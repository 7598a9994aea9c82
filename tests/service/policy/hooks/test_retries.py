"""Decisions after attempts: delays, ends, and requests of receivers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.hooks import DeliveryState
from regroup.service.policy.hooks.retries import (
    DELAYS_S,
    MAX_AGE_S,
    MAX_ATTEMPTS,
    Attempt,
    attempt_of_status,
    decide_after,
)


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_each_2xx_is_a_success(status: int) -> None:
    attempt = attempt_of_status(status)
    assert attempt.error == "" and decide_after(attempt, 1, 0.5).state is DeliveryState.DELIVERED


@pytest.mark.parametrize("status", [301, 307, 400, 404, 429, 500, 503])
def test_each_other_status_is_repeated(status: int) -> None:
    attempt = attempt_of_status(status)
    assert str(status) in attempt.error
    assert decide_after(attempt, 1, 0.5).state is DeliveryState.PENDING


def test_410_ends_the_delivery_and_disables_the_hook() -> None:
    verdict = decide_after(attempt_of_status(410), 1, 0.5)
    assert verdict.state is DeliveryState.FAILED and verdict.disables_hook


def test_a_refused_destination_ends_only_the_delivery() -> None:
    verdict = decide_after(Attempt(error="refused", is_final=True), 1, 0.5)
    assert verdict.state is DeliveryState.FAILED and not verdict.disables_hook


def test_the_delays_are_those_of_the_specification_and_then_it_fails() -> None:
    verdicts = [decide_after(attempt_of_status(500), attempts, 0.5) for attempts in range(1, MAX_ATTEMPTS + 1)]
    assert [each.delay_s for each in verdicts[:-1]] == pytest.approx(list(DELAYS_S))
    assert [each.state for each in verdicts] == [DeliveryState.PENDING] * (MAX_ATTEMPTS - 1) + [DeliveryState.FAILED]
    assert sum(DELAYS_S) == pytest.approx(3.15 * 86400, rel=0.01)
    assert sum(DELAYS_S) * 1.2 < MAX_AGE_S, "retention ends no delivery that has attempts left"


@given(st.integers(1, MAX_ATTEMPTS - 1), st.floats(0.0, 1.0), st.floats(0.0, 1e9))
def test_chance_spreads_delays_and_a_receiver_can_prolong_them(attempts: int, chance: float, after_s: float) -> None:
    base = DELAYS_S[attempts - 1]
    plain = decide_after(attempt_of_status(503), attempts, chance).delay_s
    assert 0.8 * base <= plain <= 1.2 * base * (1 + 1e-9)
    longer = decide_after(attempt_of_status(503, after_s), attempts, chance).delay_s
    assert longer == max(plain, min(after_s, 6 * 3600.0))
