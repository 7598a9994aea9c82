"""The decisions about budgets: when a job must stop, so that its use ends within 1 % of a budget, and whether one may
start.

A job holds its devices until its state is saved. So it must begin to stop before the budget is used up, but not before
99 % of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.policy.usage.report import HOUR_S, price_seconds
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.prices import PriceTable

STOP_SHARE = 0.99
"""Share of a budget at which it counts as used up: no job starts, and running jobs may be stopped."""


@dataclass(frozen=True)
class BudgetUse:
    """A budget, and its use at one moment."""

    limit: float
    unit: str
    """`device-hours`, or the currency."""
    used: float
    per_hour: float = 0.0
    """Use per hour of the devices that are held now."""
    unpriced: tuple[str, ...] = ()
    """Accelerators in use that have no price, so that the cost is unknown."""

    @property
    def is_used_up(self) -> bool:
        """True if no job may start. A cost that is unknown counts as too high."""
        return bool(self.unpriced) or self.used >= STOP_SHARE * self.limit

    def due_in_s(self, stop_s: float) -> float:
        """Return the seconds until jobs must begin to stop; 0 if they must now, infinity if nothing is used.

        Args:
            stop_s: time that a job needs to save its state and to release its devices.
        """
        if self.unpriced or self.used >= self.limit:
            return 0.0
        if self.per_hour <= 0:
            return math.inf
        until_used_up_s = (self.limit - self.used) / self.per_hour * HOUR_S
        until_share_s = (STOP_SHARE * self.limit - self.used) / self.per_hour * HOUR_S
        return max(0.0, until_share_s, until_used_up_s - stop_s)

    def later(self, seconds: float) -> "BudgetUse":
        """Return the use after some seconds in which no device is allocated or released."""
        used = self.used + self.per_hour * seconds / HOUR_S
        return BudgetUse(self.limit, self.unit, used, self.per_hour, self.unpriced)

    def __str__(self) -> str:
        return f"used {_number(self.used)} of {_number(self.limit)} {self.unit}"


def measure_use(
    budget: UsageBudget, seconds: Mapping[str, float], held: Mapping[str, int], prices: PriceTable | None
) -> BudgetUse:
    """Return the use of a budget.

    Args:
        seconds: accelerator → device-seconds so far.
        held: accelerator → number of devices that are held now.
        prices: price table; None if there is none.
    """
    rates = {name: count * HOUR_S for name, count in held.items() if count}
    if budget.device_hours is not None:
        return BudgetUse(
            budget.device_hours, "device-hours", sum(seconds.values()) / HOUR_S, sum(rates.values()) / HOUR_S
        )
    so_far = price_seconds({name: value for name, value in seconds.items() if value > 0}, prices)
    hourly = price_seconds(rates, prices)
    return BudgetUse(
        limit=budget.amount,
        unit="cost units" if prices is None else prices.currency,
        used=so_far.cost or 0.0,
        per_hour=hourly.cost or 0.0,
        unpriced=tuple(sorted({*so_far.unpriced, *hourly.unpriced})),
    )


def find_unpriced(device: str, accelerator: str | None, prices: PriceTable | None) -> str | None:
    """Return the reason why the cost of a job would be unknown; None if each device that it may get has a price."""
    if prices is None:
        return "this server has no price table: use device_hours, or have the operator set REGROUP_PRICES"
    priced = ", ".join(sorted(prices.device_hour))
    if device != "cuda":
        return None if "cpu" in prices.device_hour else f"`cpu` has no price; accelerators with a price: {priced}"
    if accelerator is None:
        return f"the type of the GPU must be known: set resources.accelerator to one with a price: {priced}"
    if accelerator not in prices.device_hour:
        return f"accelerator {accelerator} has no price; accelerators with a price: {priced}"
    return None


def next_reading_s(uses: Iterable[BudgetUse], stop_s: float, bounds_s: Sequence[float]) -> float:
    """Return the seconds until the use must be read again.

    That is a quarter of the time that is left, within bounds: the use may grow faster than it does now.
    """
    least_s, most_s = bounds_s
    left_s = min((use.due_in_s(stop_s) for use in uses), default=math.inf)
    return min(max(left_s / 4, least_s), most_s)


def _number(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"
