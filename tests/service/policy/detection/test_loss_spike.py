"""The number of rollbacks that loss spikes may cause."""

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.loss_spike import loss_spike_config
from regroup.service.policy.recovery.budget import Charge, decide_recovery
from regroup.service.policy.recovery.classify import Cause
from regroup.workers.contract.rank_config import LossSpikeAction, RepeatedSpike


def rule(charges: list[Charge], do: str = "rollback", most: int = 2, step: int = 100) -> str:
    spikes, action = {7: ("loss", 2.5)}, LossSpikeAction(do)
    config = loss_spike_config(action, spikes, charges, most, window_s=60, refill_steps=10, now_s=100.0, step=step)
    assert config.repeated == (RepeatedSpike(7, "loss", 2.5),)
    return config.action


def spikes(*steps: int) -> list[Charge]:
    return [Charge("loss_spike", 99.0, step) for step in steps]


def test_an_exhausted_budget_allows_only_warnings_until_steps_refill_it() -> None:
    assert rule([]) == rule(spikes(99)) == "rollback"
    assert rule(spikes(98, 99)) == "warn"
    assert rule(spikes(78, 79), step=100) == "rollback"
    assert rule([], most=0) == "warn"
    assert rule([Charge("loss_spike", 10.0, 99)] * 9) == "rollback", "the charges are older than the window"
    assert rule([Charge("hang", 99.0, 99)] * 9) == "rollback"


def test_the_action_never_exceeds_that_of_the_spec() -> None:
    assert rule([], do="off") == "off"
    assert rule([], do="warn") == "warn"


def test_a_permitted_rollback_never_exceeds_the_budget() -> None:
    for charges in ([], spikes(90), spikes(60, 99), spikes(80, 85, 91)):
        for step in (100, 103, 150):
            if rule(charges, step=100) == "rollback":
                cause = Cause(Reason.LOSS_SPIKE, "x", 100.0)
                verdict = decide_recovery(
                    cause, charges, {"loss_spike": 2}, window_s=60, refill_steps=10, now_s=100.0, step=step
                )
                assert verdict.is_recovery and verdict.backoff_s == 0
