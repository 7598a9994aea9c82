"""The decision after an attempt to deliver a notification. Pure: chance is an argument.

The delays grow about exponentially and span three days, as the Standard Webhooks specification recommends. Source:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (deliverability).
"""

from dataclasses import dataclass

from regroup.service.domain.hooks import DeliveryState

DELAYS_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Delays after each failed attempt. After the last one, a delivery has failed."""
MAX_ATTEMPTS = len(DELAYS_S) + 1
MAX_AGE_S = 5 * 86400.0
"""Age at which a delivery fails without a further attempt, for example of a disabled hook. Longer than all delays."""
_LONGEST_REQUESTED_S = 6 * 3600.0
_JITTER = 0.2
_GONE = 410
"""Status by which a receiver states that it wants no more of these (RFC 9110)."""
_SUCCESSES = range(200, 300)
_REDIRECTS = range(300, 400)


@dataclass(frozen=True)
class Attempt:
    """Result of one attempt."""

    status_code: int | None = None
    """HTTP status; None if there was no answer, and for e-mail."""
    error: str = ""
    """Problem, for people; empty for a success."""
    is_accepted: bool = False
    """True if the receiver accepted it."""
    is_final: bool = False
    """True if a further attempt cannot succeed."""
    retry_after_s: float = 0.0
    """Shortest delay that the receiver requests."""


@dataclass(frozen=True)
class Verdict:
    """The state of a delivery after an attempt."""

    state: DeliveryState
    delay_s: float = 0.0
    """Time until the next attempt of a pending delivery."""
    disables_hook: bool = False
    """True if the receiver wants no further notifications."""


def attempt_of_status(status_code: int, retry_after_s: float = 0.0) -> Attempt:
    """Return the result of an attempt that was answered with an HTTP status."""
    if status_code in _SUCCESSES:
        return Attempt(status_code, is_accepted=True)
    if status_code in _REDIRECTS:
        return Attempt(status_code, f"the answer {status_code} is a redirect, which is not followed; change the URL")
    if status_code == _GONE:
        why = "the receiver answered 410: it wants no further notifications, so the hook is disabled"
        return Attempt(status_code, why, is_final=True)
    return Attempt(status_code, f"the receiver answered {status_code}", retry_after_s=retry_after_s)


def decide_after(attempt: Attempt, attempts: int, chance: float) -> Verdict:
    """Return the state of a delivery after an attempt.

    Args:
        attempt: the result.
        attempts: number of attempts, with this one.
        chance: random number between 0 and 1, so that deliveries that failed together are not repeated together.
    """
    if attempt.is_accepted:
        return Verdict(DeliveryState.DELIVERED)
    if attempt.is_final or attempts >= MAX_ATTEMPTS:
        return Verdict(DeliveryState.FAILED, disables_hook=attempt.status_code == _GONE)
    delay_s = DELAYS_S[attempts - 1] * (1 - _JITTER + 2 * _JITTER * chance)
    return Verdict(DeliveryState.PENDING, max(delay_s, min(attempt.retry_after_s, _LONGEST_REQUESTED_S)))
