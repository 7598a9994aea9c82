"""When a job that runs is given another size without being asked: what it would gain against what it costs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_RESIZE_INTERVAL_S = 60.0
"""A size is kept for at least so long: what nodes do within a minute is answered once."""
CAPACITY_SETTLED_S = 10.0
"""Room counts once it has been there for so long."""
_WORTH = 3.0
"""A change has to save so many times what it costs: rates are estimates."""
_PRICE_S = 5.0
"""What a change costs where this job has not been through one."""
_LEAST_EFFICIENCY = 0.5
"""Of the devices that are added, by what is known or expected: below that they are better left to others."""
_EXPECTED_EFFICIENCY = 0.8
"""Of twice as many ranks, where one size alone has been seen."""


@dataclass(frozen=True)
class TrainingProgress:
    """A job as it trains."""

    degree: int
    """Data-parallel degree now."""
    rates: Mapping[int, float]
    """Degree → steps a second, of those that were seen; there is one for `degree`."""
    steps_left: int | None
    """None: nobody knows."""
    resize_costs_s: Sequence[float]
    """Seconds that each change of this job has taken so far."""
    since_resize_s: float
    """Since it has this size."""
    since_capacity_s: float
    """Since when there has been room for a larger one."""


def choose_growth(job: TrainingProgress, ladder: Sequence[int], room: int) -> int | None:
    """The degree to grow to, or None. `ladder`: legal degrees; `room`: the largest of them that there are nodes for.

    The work left takes `steps_left / rate` seconds; a change is worth it if that falls by more than `_WORTH` times its
    price. Of the sizes that are, the one with which the job is over first; of equals the smaller.
    """
    if job.since_resize_s < MIN_RESIZE_INTERVAL_S or job.since_capacity_s < CAPACITY_SETTLED_S:
        return None
    rate = job.rates[job.degree]
    price_s = sorted(job.resize_costs_s)[len(job.resize_costs_s) // 2] if job.resize_costs_s else _PRICE_S
    best: tuple[float, int] | None = None
    for degree in ladder:
        if not job.degree < degree <= room:
            continue
        faster = expected_rate(job.rates, job.degree, degree)
        if (faster / rate - 1) / (degree / job.degree - 1) < _LEAST_EFFICIENCY:
            continue
        saved_s = float("inf") if job.steps_left is None else job.steps_left * (1 / rate - 1 / faster)
        if saved_s > _WORTH * price_s and (best is None or faster > best[0]):
            best = (faster, degree)
    return best[1] if best else None


def expected_rate(rates: Mapping[int, float], now: int, degree: int) -> float:
    """Steps a second at a degree: as seen, else by the line through the two nearest that were seen, of the step's time
    over the inverse of the degree (Amdahl), else by a fixed efficiency of what is added."""
    if degree in rates:
        return rates[degree]
    others = sorted((each for each in rates if each != now), key=lambda each: abs(each - degree))
    if others:
        other = others[0]
        slope = (1 / rates[now] - 1 / rates[other]) / (1 / now - 1 / other)
        step_s = 1 / rates[now] + slope * (1 / degree - 1 / now)
        return 1 / step_s if step_s > 0 and slope > 0 else rates[now]
    return rates[now] * (1 + _EXPECTED_EFFICIENCY * (degree / now - 1))


def choose_shrink(ladder: Sequence[int], now: int, room: int) -> int | None:
    """The degree to go on at where nodes were lost and there are no others: the largest that there is room for. None:
    the smallest of the job does not fit either."""
    return max((degree for degree in ladder if degree < now and degree <= room), default=None)
