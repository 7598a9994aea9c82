"""Charge a failure to a budget and decide whether the job continues. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.backoff import backoff_s
from regroup.service.domain.states import BUDGET_BY_REASON, PROGRESS_REASONS, Reason
from regroup.service.policy.recovery.classify import Cause

_BUDGET_OF_THE_CODE = {
    Reason.USER_ERROR: "user_error",
    Reason.DESYNC: "user_error",
    Reason.NON_FINITE: "non_finite",
    Reason.DEVICE_ERROR: "device_error",
}
"""Reasons that end the job unless its spec allows more attempts."""
_NO_ACCIDENT_TWICE = frozenset({Reason.NON_FINITE, Reason.DEVICE_ERROR})
"""Reasons that end the job if they repeat at the same step, from the same state."""
_FIRST_BACKOFF_S = 0.5
_BACKOFF_CAP_S = 30.0
_BACKOFF_FROM = {Reason.IO_ERROR: 1}
"""Number of failures in a row before the first back-off; 3 by default. Storage and connections recover more slowly than
processes."""


@dataclass(frozen=True)
class Charge:
    """One failure that was charged to a budget."""

    budget: str
    time_s: float
    step: int
    """Number of committed steps of the job at that time."""
    failed_at: int | None = None
    """Step of the rank that failed; None if no rank reported an exception.

    At that time, the rank that commits the job's steps may or may not have committed one more, by chance.
    """

    def is_at(self, step: int, failed_at: int | None) -> bool:
        """Return whether another failure, at these steps, is at the same place of the training."""
        if self.failed_at is None or failed_at is None:
            return self.step == step
        return self.failed_at == failed_at and abs(self.step - step) <= 1


def budget_of(reason: Reason, budgets: Mapping[str, int]) -> str | None:
    """Return the budget that a reason is charged to, or None.

    None means that the reason ends the job (errors of the code, non-finite steps and device errors, unless the spec
    allows more attempts) or that the end was planned.
    """
    if (budget := _BUDGET_OF_THE_CODE.get(reason)) is not None:
        return budget if budgets.get(budget) else None
    return BUDGET_BY_REASON.get(reason)


@dataclass(frozen=True)
class RecoveryDecision:
    """Decision whether the job continues, and after which pause."""

    is_recovery: bool
    reason: Reason
    """Reason of the end of the job if it does not continue."""
    message: str
    backoff_s: float = 0.0


def decide_recovery(
    cause: Cause,
    charges: Sequence[Charge],
    budgets: Mapping[str, int],
    *,
    window_s: float,
    refill_steps: int,
    now_s: float,
    step: int,
) -> RecoveryDecision:
    """Decide whether the budgets allow one more recovery.

    A budget is a leaky bucket. Each failure adds one, each `refill_steps` committed steps remove one, and failures
    older than the window do not count. Repeated failures without progress increase the back-off.

    Args:
        charges: earlier failures, the oldest first.
    """
    if cause.reason in PROGRESS_REASONS:
        return RecoveryDecision(True, cause.reason, cause.summary)
    budget = budget_of(cause.reason, budgets)
    if budget is None:
        return RecoveryDecision(False, cause.reason, cause.summary)
    mine = [charge for charge in charges if charge.budget == budget and now_s - charge.time_s <= window_s]
    failed_at = None if cause.failure is None else cause.failure.step
    if cause.reason in _NO_ACCIDENT_TWICE and any(charge.is_at(step, failed_at) for charge in mine):
        return RecoveryDecision(
            False,
            cause.reason,
            f"{cause.summary}. The same failure occurred before at this step, from the same state: not retried",
        )
    mine.append(Charge(budget, now_s, step, failed_at))
    if budget_level(mine, refill_steps) > budgets[budget]:
        message = (
            f"{cause.summary}; {len(mine)} failures of budget {budget!r} within {window_s:.0f} s exceed "
            f"recovery.budgets.{budget}={budgets[budget]}"
        )
        return RecoveryDecision(False, Reason.BUDGET_EXHAUSTED, message)
    in_a_row = next((n for n, charge in enumerate(reversed(mine)) if charge.step != step), len(mine))
    delayed = in_a_row - _BACKOFF_FROM.get(cause.reason, 3) + 1
    delay_s = backoff_s(delayed, first_s=_FIRST_BACKOFF_S, longest_s=_BACKOFF_CAP_S)
    return RecoveryDecision(True, cause.reason, cause.summary, delay_s)


def budget_level(charges: Sequence[Charge], refill_steps: int) -> float:
    """Return the level of the bucket after the last of these charges of one budget, the oldest first."""
    level, last_step = 0.0, 0
    for charge in charges:
        gained = max(0, charge.step - last_step)  # the restored step may be below that of the last failure
        level = max(0.0, level - gained / refill_steps) + 1
        last_step = charge.step
    return level
