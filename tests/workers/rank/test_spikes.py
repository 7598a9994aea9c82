"""When a loss stands out from those before it, and what a rank does then."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.workers.failure import ErrorClass
from regroup.workers.rank.errors import LossSpikeError, classify
from regroup.workers.rank.loss_spikes import LossSpikes, limit_of

EVEN = [2.0 + 0.01 * (step % 5) for step in range(30)]


def after(losses: list[float], do: str = "warn", known: list[tuple[int, float]] | None = None) -> LossSpikes:
    spikes = LossSpikes({"loss_spike": {"do": do, "known": known or []}})
    for step, loss in enumerate(losses, 1):
        assert spikes.look(step, loss) is None
    return spikes


def test_one_that_stands_out_is_told_once_until_it_has_come_down() -> None:
    spikes = after(EVEN)
    told = spikes.look(31, 9.0)
    assert told is not None and told["message"] == "step 31: loss 9 stands out: no more than 2.525 was to be expected"
    assert [spikes.look(step, loss) for step, loss in ((32, 8.0), (33, 2.0))] == [None, None]
    assert spikes.look(34, 9.0) is not None


def test_too_few_steps_tell_nothing() -> None:
    assert limit_of([2.0] * 19) is None
    assert limit_of([2.0] * 20) == 2.5
    assert after([2.0] * 10).look(11, 1e9) is None


def test_a_loss_that_falls_or_is_noisy_is_none() -> None:
    after([11 * math.exp(-step / 40) + 2 for step in range(300)])
    after([3 + 0.3 * math.sin(step * step) for step in range(300)])


def test_wild_values_among_those_before_hide_nothing() -> None:
    wild = [*EVEN[:20], *([50.0] * 8), *EVEN]
    assert limit_of(wild) == pytest.approx(limit_of(EVEN), rel=0.05)


@pytest.mark.parametrize("do", ["rollback"])
def test_the_step_is_to_be_done_once_more_and_goes_on_as_it_comes_out(do: str) -> None:
    with pytest.raises(LossSpikeError, match="step 31: loss 9 stands out") as told:
        after(EVEN, do).look(31, 9.0)
    assert classify(told.value) is ErrorClass.LOSS_SPIKE
    assert told.value.details == {"step": 31, "loss": 9.0, "limit": 2.525}
    gone = LossSpikes({"loss_spike": {"do": do, "known": [(31, 2.525)]}})
    assert gone.look(31, 2.02) is None
    again = LossSpikes({"loss_spike": {"do": do, "known": [(31, 2.525)]}})
    said = again.look(31, 9.0)
    assert said is not None and "It came out so again, from the same state" in said["message"]
    assert again.look(32, 8.0) is None


def test_switched_off_nobody_looks() -> None:
    spikes = LossSpikes({"loss_spike": {"do": "off"}})
    assert [spikes.look(step, loss) for step, loss in enumerate([*EVEN, 9.0])] == [None] * 31
    assert LossSpikes({}).look(1, 9.0) is None


@settings(max_examples=25, deadline=None)
@given(
    losses=st.lists(st.floats(-50, 50), min_size=20, max_size=64),
    scale=st.sampled_from([0.5, 2.0, 64.0]),
)
def test_the_limit_lies_above_the_usual_and_has_its_unit(losses: list[float], scale: float) -> None:
    limit = limit_of(losses)
    assert limit is not None and limit >= sorted(losses)[len(losses) // 2 - 1]
    assert limit_of([scale * loss for loss in losses]) == pytest.approx(scale * limit)
