"""Configure the ranks' reaction to loss spikes. Pure. All ranks detect a spike themselves, before any state of the step
is stored (workers/rank/numerics/loss_spikes.py)."""

from collections.abc import Mapping, Sequence

from regroup.service.policy.recovery.budget import Charge, budget_level
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig, RepeatedSpike

BUDGET = "loss_spike"


def loss_spike_config(
    action: LossSpikeAction,
    spiked: Mapping[int, tuple[str, float]],
    charges: Sequence[Charge],
    most: int,
    *,
    window_s: float,
    refill_steps: int,
    now_s: float,
    step: int,
) -> LossSpikeConfig:
    """Return the loss spike configuration of the next generation's ranks.

    Args:
        spiked: the steps that are repeated because of a spike, each with the metric that spiked and its largest normal
            value.
        action: the spec's `recovery.loss_spike`. Without remaining budget, `rollback` becomes `warn`: a spike never
            ends a job.
        charges: earlier failures of all causes, the oldest first.
        most: number of spikes that the budget allows.
        step: start step of the next generation.
    """
    mine = [charge for charge in charges if charge.budget == BUDGET and now_s - charge.time_s <= window_s]
    is_used_up = budget_level([*mine, Charge(BUDGET, now_s, step)], refill_steps) > most
    repeated = tuple(RepeatedSpike(at, metric, limit) for at, (metric, limit) in sorted(spiked.items()))
    if action is LossSpikeAction.ROLLBACK and is_used_up:
        action = LossSpikeAction.WARN
    return LossSpikeConfig(action, repeated)
