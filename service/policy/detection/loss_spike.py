"""Whether ranks may still go back when a loss or gradient norm stands out. Pure. What stands out they find themselves,
all alike, before anything of the step is kept (workers/rank/loss_spikes.py)."""

from collections.abc import Mapping, Sequence

from regroup.service.policy.recovery.budget import Charge, budget_level
from regroup.workers.contract.rank_config import LossSpikeAction, LossSpikeConfig, RepeatedSpike

BUDGET = "loss_spike"


def loss_spike_config(
    action: LossSpikeAction,
    known: Mapping[int, tuple[str, float]],
    charges: Sequence[Charge],
    most: int,
    *,
    window_s: float,
    refill_steps: int,
    now_s: float,
    step: int,
) -> LossSpikeConfig:
    """What the ranks of the next generation are told, as plain data: `do`, and as `known` the steps that are done again
    because of a spike, each with what stood out and its largest value that does not.

    Args:
        action: the spec's `recovery.loss_spike`. A `rollback` that the budget does not allow any more is a `warn`: a
            job does not end for its loss.
        charges: earlier failures of all causes, oldest first; `most`: of them that the budget allows.
        step: that the next generation starts from.
    """
    mine = [charge for charge in charges if charge.budget == BUDGET and now_s - charge.time_s <= window_s]
    is_used_up = budget_level([*mine, Charge(BUDGET, now_s, step)], refill_steps) > most
    repeated = tuple(RepeatedSpike(at, metric, limit) for at, (metric, limit) in sorted(known.items()))
    if action is LossSpikeAction.ROLLBACK and is_used_up:
        action = LossSpikeAction.WARN
    return LossSpikeConfig(action, repeated)
