"""The price of device-hours: an accelerator without a price is reported, and is never free of charge."""

import pytest

from regroup.service.policy.usage.report import Consumption, price_seconds
from regroup.service.spec.prices import PriceTable

PRICES = PriceTable(currency="EUR", device_hour={"H100": 2.5, "cpu": 0.0})


@pytest.mark.parametrize(
    ("seconds", "prices", "consumption"),
    [
        ({"H100": 7200.0}, PRICES, Consumption(2.0, 5.0, 0.0)),
        ({"H100": 3600.0, "A100": 1800.0}, PRICES, Consumption(1.5, 2.5, 0.5, ("A100",))),
        ({"A100": 1800.0, "cuda": 3600.0}, PRICES, Consumption(1.5, None, 1.5, ("A100", "cuda"))),
        ({"cpu": 3600.0}, PRICES, Consumption(1.0, 0.0, 0.0)),
        ({"H100": 3600.0}, None, Consumption(1.0, None, 1.0, ("H100",))),
        ({}, PRICES, Consumption(0.0, None, 0.0)),
    ],
)
def test_device_seconds_have_a_price(
    seconds: dict[str, float], prices: PriceTable | None, consumption: Consumption
) -> None:
    assert price_seconds(seconds, prices) == consumption
