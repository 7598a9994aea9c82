"""Detect jobs that use their devices too little. The job is reported first and, if configured, suspended later.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

WELL = 1.5
"""Factor above the threshold at which a reported job counts as recovered, which avoids oscillation."""


@dataclass(frozen=True)
class LowUtilizationPolicy:
    """Threshold of low utilization and its consequences."""

    below: float
    """Threshold, as a fraction of the devices' peak."""
    after_s: float
    """Time over which utilization is measured."""
    suspend_after_s: float | None = None
    """Time after the report at which the job is suspended; None for never."""


@dataclass(frozen=True)
class UtilizationSample:
    """Progress of a training job at one moment."""

    at_s: float
    """Time in Unix seconds."""
    step: int
    """Number of committed steps."""
    step_s: float | None = None
    """Current step time; None while unknown."""
    mfu: float | None = None
    """Model FLOPs utilization of the newest step; None if it is not measured."""


@dataclass(frozen=True)
class Utilization:
    """Measured utilization of a job's devices."""

    share: float
    low_since_s: float | None
    """Time in Unix seconds since which the utilization is low; None if it is not."""
    suspend: bool = False
    """True if the job must be suspended."""


def recent_samples(samples: Sequence[UtilizationSample], rule: LowUtilizationPolicy) -> tuple[UtilizationSample, ...]:
    """Return the newest samples that span the measuring time."""
    old = [number for number, sample in enumerate(samples) if samples[-1].at_s - sample.at_s >= rule.after_s]
    return tuple(samples[old[-1] if old else 0 :])


def assess_utilization(
    samples: Sequence[UtilizationSample], rule: LowUtilizationPolicy, low_since_s: float | None, usual_s: float | None
) -> Utilization | None:
    """Return the utilization of the job; None while it cannot be measured.

    Args:
        samples: samples at this size in time order, without an interruption of training.
        low_since_s: result of the last assessment.
        usual_s: shortest step time that was measured at this size.
    """
    samples = recent_samples(samples, rule)
    if not samples or samples[-1].at_s - samples[0].at_s < rule.after_s:
        return None
    share = _share(samples, usual_s)
    if share is None:
        return None
    now_s = samples[-1].at_s
    if share >= rule.below * (1.0 if low_since_s is None else WELL):
        return Utilization(share, None)
    since_s = now_s if low_since_s is None else low_since_s
    patience_s = rule.suspend_after_s
    return Utilization(share, since_s, patience_s is not None and now_s - since_s >= patience_s)


def _share(samples: Sequence[UtilizationSample], usual_s: float | None) -> float | None:
    """Return the fraction of time spent in steps, multiplied by their MFU. Without an MFU, a step at the shortest
    measured step time counts as full utilization."""
    passed_s, steps = samples[-1].at_s - samples[0].at_s, samples[-1].step - samples[0].step
    measured = [sample.mfu for sample in samples if sample.mfu is not None]
    if measured and (step_s := samples[-1].step_s):
        return sum(measured) / len(measured) * min(1.0, steps * step_s / passed_s)
    return None if usual_s is None else min(1.0, steps * usual_s / passed_s)
