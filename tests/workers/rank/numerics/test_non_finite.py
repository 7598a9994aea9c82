"""Handling of steps that are not finite."""

import pytest

from regroup.workers.contract.error_classes import NonFiniteError, classify
from regroup.workers.contract.rank_config import NonFiniteAction, NonFiniteConfig
from regroup.workers.contract.rank_error import ErrorClass
from regroup.workers.rank.numerics.non_finite import NonFinite


def rule(do: str) -> NonFinite:
    return NonFinite(NonFiniteConfig(NonFiniteAction(do), max_skips=2, refill_steps=10), "Lower the rate")


@pytest.mark.parametrize("do", ["rollback", "fail"])
def test_the_step_is_discarded_and_the_error_contains_the_remedy(do: str) -> None:
    with pytest.raises(NonFiniteError, match=r"step 4: loss nan; the step was discarded\. Lower the rate") as raised:
        rule(do).skip(4, "loss nan")
    assert classify(raised.value) is ErrorClass.NON_FINITE
    assert classify(FloatingPointError("the code's own")) is ErrorClass.USER


def test_skips_are_bounded_and_steps_refill_them() -> None:
    non_finite = rule("skip")
    assert non_finite.skip(5, "loss nan") == {"step": 5, "message": "step 5: loss nan; update skipped"}
    non_finite.skip(6, "loss nan")
    non_finite.skip(17, "loss inf")
    with pytest.raises(
        NonFiniteError, match=r"step 18: loss inf; more than recovery\.budgets\.non_finite=2 such steps"
    ):
        non_finite.skip(18, "loss inf")


def test_every_step_without_numbers_ends_it_soon() -> None:
    non_finite = rule("skip")
    taken = 0
    with pytest.raises(NonFiniteError):
        for step in range(100):
            non_finite.skip(step, "loss nan")
            taken = step
    assert taken < 3


def test_the_detector_can_be_off() -> None:
    assert not rule("rollback").is_finite(1.0, float("nan"))
    assert rule("ignore").is_finite(1.0, float("nan"))
