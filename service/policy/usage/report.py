"""Rows of the usage report: device-hours of a group, and what they cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from regroup.service.spec.prices import PriceTable

HOUR_S = 3600.0


@dataclass(frozen=True)
class Consumption:
    """Use of devices, in hours and money."""

    device_hours: float
    cost: float | None
    """Cost of the device-hours that have a price; None if none of them has one."""
    unpriced_device_hours: float
    """Device-hours on accelerators without a price, which no cost contains."""
    unpriced: tuple[str, ...] = ()
    """Accelerators without a price."""


def price_seconds(seconds: Mapping[str, float], prices: PriceTable | None) -> Consumption:
    """Return the consumption of device-seconds by accelerator. An accelerator without a price is never free of charge.

    Args:
        seconds: accelerator → device-seconds.
        prices: price table; None: no accelerator has a price.
    """
    table = {} if prices is None else prices.device_hour
    hours = {name: value / HOUR_S for name, value in seconds.items()}
    priced = {name: value for name, value in hours.items() if name in table}
    unpriced = {name: value for name, value in hours.items() if name not in table}
    return Consumption(
        device_hours=sum(hours.values(), 0.0),
        cost=sum((value * table[name] for name, value in priced.items()), 0.0) if priced else None,
        unpriced_device_hours=sum(unpriced.values(), 0.0),
        unpriced=tuple(sorted(unpriced)),
    )
