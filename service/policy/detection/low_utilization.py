"""Whether a job makes use of the devices that it holds. It is said first; later, where that is wanted, the job is
suspended. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

WELL = 1.5
"""A job of which it was said does well again from so many times the bound on: no to and fro."""


@dataclass(frozen=True)
class LowUtilizationPolicy:
    """What counts as low, and what follows."""

    below: float
    """Share of what its devices could do."""
    after_s: float
    """Measured over so long."""
    suspend_after_s: float | None = None
    """When it has been low for so long since it was said, the job is suspended; None: never."""


@dataclass(frozen=True)
class UtilizationSample:
    """A job that trains, at one moment."""

    at_s: float
    """Unix seconds."""
    step: int
    """Committed steps."""
    step_s: float | None = None
    """A step's time now; None before it is known."""
    mfu: float | None = None
    """Model FLOPs utilisation of its newest step; None where nobody counts them."""


@dataclass(frozen=True)
class Utilization:
    """What is made of a job's devices."""

    share: float
    low_since_s: float | None
    """Since when it has been found low, Unix seconds; None: it does well."""
    suspend: bool = False
    """It is to be suspended."""


def recent_samples(looks: Sequence[UtilizationSample], rule: LowUtilizationPolicy) -> tuple[UtilizationSample, ...]:
    """The newest looks, as many as it takes to measure: the first is the last of those that are old enough."""
    old = [number for number, look in enumerate(looks) if looks[-1].at_s - look.at_s >= rule.after_s]
    return tuple(looks[old[-1] if old else 0 :])


def assess_utilization(
    looks: Sequence[UtilizationSample], rule: LowUtilizationPolicy, low_since_s: float | None, usual_s: float | None
) -> Utilization | None:
    """What the job makes of its devices; None while it is too early to say, or nothing can be measured.

    Args:
        looks: at this size, in the order of time, without a gap in which it did not train.
        low_since_s: as it was found the last time.
        usual_s: the least time of a step that was seen at this size.
    """
    looks = recent_samples(looks, rule)
    if not looks or looks[-1].at_s - looks[0].at_s < rule.after_s:
        return None
    share = _share(looks, usual_s)
    if share is None:
        return None
    now_s = looks[-1].at_s
    if share >= rule.below * (1.0 if low_since_s is None else WELL):
        return Utilization(share, None)
    since_s = now_s if low_since_s is None else low_since_s
    patience_s = rule.suspend_after_s
    return Utilization(share, since_s, patience_s is not None and now_s - since_s >= patience_s)


def _share(looks: Sequence[UtilizationSample], usual_s: float | None) -> float | None:
    """Of the time of `looks` the part that was spent in steps, by what these made of the devices. Where that is not
    known, a step at the pace that the job is known to have makes full use of them."""
    passed_s, steps = looks[-1].at_s - looks[0].at_s, looks[-1].step - looks[0].step
    known = [look.mfu for look in looks if look.mfu is not None]
    if known and (step_s := looks[-1].step_s):
        return sum(known) / len(known) * min(1.0, steps * step_s / passed_s)
    return None if usual_s is None else min(1.0, steps * usual_s / passed_s)
