"""Decide when a running job is resized automatically: the expected gain against the cost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_RESIZE_INTERVAL_S = 60.0
"""Minimum time between resizes: changes of the cluster within a minute cause one resize."""
CAPACITY_SETTLED_S = 10.0
"""Time for which capacity must have been available before it counts."""
_WORTH = 3.0
"""Factor by which the saved time must exceed the cost: rates are estimates."""
ASSUMED_COST_S = 5.0
"""Cost of a resize if the job has not been resized before."""
_LEAST_EFFICIENCY = 0.5
"""Smallest efficiency of added devices: below it other jobs use them better."""
_EXPECTED_EFFICIENCY = 0.8
"""Assumed efficiency of twice as many ranks if only one size was measured."""


@dataclass(frozen=True)
class TrainingProgress:
    """A training job."""

    degree: int
    """Current data-parallel degree."""
    rates: Mapping[int, float]
    """Degree → measured steps per second; includes `degree`."""
    steps_left: int | None
    """Remaining steps; None if unknown."""
    resize_costs_s: Sequence[float]
    """Seconds that each resize of this job has taken."""
    since_resize_s: float
    """Time since the job has this size."""
    since_capacity_s: float
    """Time since capacity for a larger size is available."""


def choose_growth(job: TrainingProgress, ladder: Sequence[int], capacity: int) -> int | None:
    """Return the degree to grow to, or None.

    The remaining work takes `steps_left / rate` seconds. A resize is worth it if it saves more than `_WORTH` times its
    cost. Of these sizes, the one with the earliest end is returned; of equal ones the smaller.

    Args:
        ladder: legal degrees.
        capacity: largest of them for which there are nodes.
    """
    if job.since_resize_s < MIN_RESIZE_INTERVAL_S or job.since_capacity_s < CAPACITY_SETTLED_S:
        return None
    rate = job.rates[job.degree]
    price_s = sorted(job.resize_costs_s)[len(job.resize_costs_s) // 2] if job.resize_costs_s else ASSUMED_COST_S
    best: tuple[float, int] | None = None
    for degree in ladder:
        if not job.degree < degree <= capacity:
            continue
        faster = expected_rate(job.rates, job.degree, degree)
        if (faster / rate - 1) / (degree / job.degree - 1) < _LEAST_EFFICIENCY:
            continue
        saved_s = float("inf") if job.steps_left is None else job.steps_left * (1 / rate - 1 / faster)
        if saved_s > _WORTH * price_s and (best is None or faster > best[0]):
            best = (faster, degree)
    return best[1] if best else None


def expected_rate(rates: Mapping[int, float], now: int, degree: int) -> float:
    """Return the expected steps per second at a degree.

    The measured rate if there is one. Otherwise a line through the two nearest measurements of the step time over the
    inverse of the degree (Amdahl), or a fixed efficiency of the added ranks.
    """
    if degree in rates:
        return rates[degree]
    others = sorted((each for each in rates if each != now), key=lambda each: abs(each - degree))
    if others:
        other = others[0]
        slope = (1 / rates[now] - 1 / rates[other]) / (1 / now - 1 / other)
        step_s = 1 / rates[now] + slope * (1 / degree - 1 / now)
        return 1 / step_s if step_s > 0 and slope > 0 else rates[now]
    return rates[now] * (1 + _EXPECTED_EFFICIENCY * (degree / now - 1))


def choose_shrink(ladder: Sequence[int], now: int, capacity: int) -> int | None:
    """Return the largest degree that fits after nodes were lost; None if the smallest degree does not fit."""
    return max((degree for degree in ladder if degree < now and degree <= capacity), default=None)
