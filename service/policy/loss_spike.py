"""Whether ranks may still go back when a loss stands out. Pure. What stands out they find themselves, all alike, before
anything of the step is kept (workers/rank/loss_spikes.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.policy.recovery import Charge, level_of

BUDGET = "loss_spike"


def rule_for_ranks(
    do: str,
    known: Mapping[int, float],
    charges: Sequence[Charge],
    most: int,
    *,
    window_s: float,
    refill_steps: int,
    now_s: float,
    step: int,
) -> dict[str, Any]:
    """What the ranks of the next generation are told, as plain data: `do`, and as `known` the steps that are done again
    because of a spike, each with the largest loss that is none.

    Args:
        do: the spec's `recovery.loss_spike`. A `rollback` that the budget does not allow any more is a `warn`: a job
            does not end for its loss.
        charges: earlier failures of all causes, oldest first; `most`: of them that the budget allows.
        step: that the next generation starts from.
    """
    mine = [charge for charge in charges if charge.budget == BUDGET and now_s - charge.time_s <= window_s]
    is_used_up = level_of([*mine, Charge(BUDGET, now_s, step)], refill_steps) > most
    return {"do": "warn" if do == "rollback" and is_used_up else do, "known": sorted(known.items())}
