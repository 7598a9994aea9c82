"""Detection of loss spikes, and the reaction of a rank."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.workers.contract.error_classes import LossSpikeError, classify
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig, RepeatedSpike
from regroup.workers.contract.rank_error import ErrorClass
from regroup.workers.rank.numerics.loss_spikes import LOSS, NORM, LossSpikes, limit_of_losses, limit_of_norms

EVEN = [2.0 + 0.01 * (step % 5) for step in range(30)]


def after(losses: list[float], do: str = "warn", norms: list[float] | None = None) -> LossSpikes:
    spikes = LossSpikes(LossSpikeConfig(LossSpikeAction(do)))
    for number, loss in enumerate(losses):
        assert spikes.check(number + 1, loss, norms[number] if norms else None) == []
    return spikes


def messages(spikes: LossSpikes, step: int, loss: float | None, norm: float | None = None) -> list[str]:
    return [spike["message"] for spike in spikes.check(step, loss, norm)]


def test_a_spike_is_reported_once_until_the_loss_is_usual_again() -> None:
    spikes = after(EVEN)
    assert messages(spikes, 31, 9.0) == ["step 31: loss 9 is a spike: at most 2.525 was expected"]
    assert [messages(spikes, step, loss) for step, loss in ((32, 8.0), (33, 2.0))] == [[], []]
    assert len(messages(spikes, 34, 9.0)) == 1


def test_a_gradient_norm_stands_out_while_the_loss_is_right() -> None:
    norms = [1.0 + 0.5 * (step % 5) for step in range(30)]
    assert limit_of_norms(norms) == 30.0 and limit_of_norms(norms[:19]) is None
    assert messages(after(EVEN, norms=norms), 31, 2.0, 30.0) == []
    spikes = after(EVEN, norms=norms)
    message = "step 31: gradient norm 31 is a spike: at most 30 was expected"
    assert messages(spikes, 31, 2.0, 31.0) == [message]
    assert len(messages(spikes, 32, 9.0, 31.0)) == 1, "the norm was reported before, the loss was not"
    with pytest.raises(LossSpikeError) as raised:
        after(EVEN, "rollback", norms).check(31, 2.0, 31.0)
    assert raised.value.details == {"step": 31, "of": NORM, "value": 31.0, "limit": 30.0}


def test_a_few_wild_gradient_norms_hide_no_other() -> None:
    assert limit_of_norms([*([1e6] * 3), *([1.0] * 37)]) == 10.0


def test_a_step_without_a_loss_or_a_norm_is_never_a_spike() -> None:
    assert messages(after(EVEN), 31, None, None) == []


def test_too_few_steps_give_no_limit() -> None:
    assert limit_of_losses([2.0] * 19) is None
    assert limit_of_losses([2.0] * 20) == 2.5
    assert messages(after([2.0] * 10), 11, 1e9) == []


def test_a_loss_that_falls_or_is_noisy_is_none() -> None:
    after([11 * math.exp(-step / 40) + 2 for step in range(300)])
    after([3 + 0.3 * math.sin(step * step) for step in range(300)])


def test_wild_values_among_those_before_hide_nothing() -> None:
    wild = [*EVEN[:20], *([50.0] * 8), *EVEN]
    assert limit_of_losses(wild) == pytest.approx(limit_of_losses(EVEN), rel=0.05)


@pytest.mark.parametrize("do", ["rollback"])
def test_a_spike_rolls_back_once_and_the_repeated_step_continues(do: str) -> None:
    with pytest.raises(LossSpikeError, match="step 31: loss 9 is a spike") as spike:
        after(EVEN, do).check(31, 9.0, None)
    assert classify(spike.value) is ErrorClass.LOSS_SPIKE
    assert spike.value.details == {"step": 31, "of": LOSS, "value": 9.0, "limit": 2.525}
    config = LossSpikeConfig(LossSpikeAction(do), (RepeatedSpike(31, LOSS, 2.525),))
    assert messages(LossSpikes(config), 31, 2.02) == []
    again = LossSpikes(config)
    (message,) = messages(again, 31, 9.0)
    assert "It recurred from the same state" in message
    assert messages(again, 32, 8.0) == []


def test_the_detector_can_be_off() -> None:
    spikes = LossSpikes(LossSpikeConfig(LossSpikeAction.OFF))
    assert [messages(spikes, step, loss, 1.0) for step, loss in enumerate([*EVEN, 9.0])] == [[]] * 31
    assert messages(LossSpikes(LossSpikeConfig()), 1, 9.0) == []


@settings(max_examples=25)
@given(
    losses=st.lists(st.floats(-50, 50), min_size=20, max_size=64),
    scale=st.sampled_from([0.5, 2.0, 64.0]),
)
def test_the_limit_lies_above_the_usual_and_has_its_unit(losses: list[float], scale: float) -> None:
    limit = limit_of_losses(losses)
    assert limit is not None and limit >= sorted(losses)[len(losses) // 2 - 1]
    assert limit_of_losses([scale * loss for loss in losses]) == pytest.approx(scale * limit)
