"""Charge an incident to a budget and decide whether the job goes on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import BUDGET_BY_REASON, PROGRESS_REASONS, Reason
from regroup.service.policy.recovery.classify import Cause

_BUDGET_OF_THE_CODE = {
    Reason.USER_ERROR: "user_error",
    Reason.DESYNC: "user_error",
    Reason.NON_FINITE: "non_finite",
    Reason.DEVICE_ERROR: "device_error",
}
"""Ends the job unless its spec allows more tries."""
_NO_ACCIDENT_TWICE = frozenset({Reason.NON_FINITE, Reason.DEVICE_ERROR})
"""At the same step, from the same state."""
_BACKOFF_CAP_S = 30.0
_BACKOFF_FROM = {Reason.IO_ERROR: 1}
"""Storage and connections come back later than processes do: it waits after the first such failure, else the third."""


@dataclass(frozen=True)
class Charge:
    """One failure on a budget's account."""

    budget: str
    time_s: float
    step: int
    """Committed steps of the job when it happened."""


def budget_of(reason: Reason, budgets: Mapping[str, int]) -> str | None:
    """The budget that a reason is charged to; None if it is charged to none: it ends the job, as an error of the code,
    a step that has no finite numbers or a device, does unless allowed, or it was planned."""
    if (budget := _BUDGET_OF_THE_CODE.get(reason)) is not None:
        return budget if budgets.get(budget) else None
    return BUDGET_BY_REASON.get(reason)


@dataclass(frozen=True)
class RecoveryDecision:
    """Whether the job goes on, and how long it waits before."""

    is_recovery: bool
    reason: Reason
    """Why the job ends, if it does."""
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
    """Whether the budgets allow one more recovery. `charges` holds earlier failures, oldest first.

    A budget is a leaky bucket: each failure adds one, each `refill_steps` committed steps take one away, and failures
    older than the window are forgotten. Failures in a row without progress wait longer and longer.
    """
    if cause.reason in PROGRESS_REASONS:
        return RecoveryDecision(True, cause.reason, cause.summary)
    budget = budget_of(cause.reason, budgets)
    if budget is None:
        return RecoveryDecision(False, cause.reason, cause.summary)
    mine = [charge for charge in charges if charge.budget == budget and now_s - charge.time_s <= window_s]
    if cause.reason in _NO_ACCIDENT_TWICE and any(charge.step == step for charge in mine):
        return RecoveryDecision(
            False, cause.reason, f"{cause.summary}. It was so before, from the same state: no accident"
        )
    mine.append(Charge(budget, now_s, step))
    if budget_level(mine, refill_steps) > budgets[budget]:
        message = (
            f"{cause.summary}; {len(mine)} failures of budget {budget!r} within {window_s:.0f} s exceed "
            f"recovery.budgets.{budget}={budgets[budget]}"
        )
        return RecoveryDecision(False, Reason.BUDGET_EXHAUSTED, message)
    in_a_row = next((n for n, charge in enumerate(reversed(mine)) if charge.step != step), len(mine))
    doublings = in_a_row - _BACKOFF_FROM.get(cause.reason, 3)
    backoff_s = min(_BACKOFF_CAP_S, 0.5 * 2**doublings) if doublings >= 0 else 0.0
    return RecoveryDecision(True, cause.reason, cause.summary, backoff_s)


def budget_level(charges: Sequence[Charge], refill_steps: int) -> float:
    """How full the bucket is right after the last of these charges of one budget, oldest first."""
    level, last_step = 0.0, 0
    for charge in charges:
        gained = max(0, charge.step - last_step)  # what was restored may be older than what failed before
        level = max(0.0, level - gained / refill_steps) + 1
        last_step = charge.step
    return level
