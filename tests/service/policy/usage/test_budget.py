"""The decisions about budgets: when a job begins to stop, and whether one may start."""

import math

import pytest

from regroup.service.policy.usage.budget import BudgetUse, find_unpriced, measure_use, next_reading_s
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.prices import PriceTable

PRICES = PriceTable(currency="EUR", device_hour={"H100": 2.0, "cpu": 0.5})
HOUR_S = 3600.0
HOURS = UsageBudget(device_hours=100)
MONEY = UsageBudget(cost=50)


@pytest.mark.parametrize(
    ("budget", "seconds", "held", "prices", "use"),
    [
        (HOURS, {"H100": HOUR_S, "cpu": HOUR_S}, {"H100": 8, "cpu": 2}, None, BudgetUse(100, "device-hours", 2, 10)),
        (MONEY, {"H100": HOUR_S, "cpu": HOUR_S}, {"H100": 8}, PRICES, BudgetUse(50, "EUR", 2.5, 16)),
        (MONEY, {"H100": HOUR_S, "A100": 1.0}, {}, PRICES, BudgetUse(50, "EUR", 2.0, 0, ("A100",))),
        (MONEY, {}, {"A100": 1}, PRICES, BudgetUse(50, "EUR", 0.0, 0.0, ("A100",))),
        (MONEY, {"A100": 0.0}, {"A100": 0}, PRICES, BudgetUse(50, "EUR", 0.0, 0.0)),
        (HOURS, {"A100": 3600.0}, {}, PRICES, BudgetUse(100, "device-hours", 1.0, 0.0)),
    ],
)
def test_use_is_measured_in_the_unit_of_the_budget(
    budget: UsageBudget, seconds: dict[str, float], held: dict[str, int], prices: PriceTable | None, use: BudgetUse
) -> None:
    assert measure_use(budget, seconds, held, prices) == use


@pytest.mark.parametrize(
    ("used", "per_hour", "stop_s", "due_in_s"),
    [
        (0.0, 0.0, 60.0, math.inf),
        (100.0, 0.0, 0.0, 0.0),
        (98.0, 10.0, 0.0, 720.0),
        (98.0, 10.0, 120.0, 600.0),
        (98.0, 10.0, 7200.0, 360.0),  # not before 99 %
        (99.5, 10.0, 7200.0, 0.0),
        (99.5, 10.0, 60.0, 120.0),
        (98.9999, 1e6, 60.0, pytest.approx(3.6e-7)),
    ],
)
def test_a_job_begins_to_stop_in_time_but_not_before_99_percent(
    used: float, per_hour: float, stop_s: float, due_in_s: float
) -> None:
    assert BudgetUse(100.0, "device-hours", used, per_hour).due_in_s(stop_s) == due_in_s


@pytest.mark.parametrize("stop_s", [0.0, 5.0, 100.0, 1e5])
@pytest.mark.parametrize("per_hour", [0.1, 8.0, 1000.0])
def test_a_stop_that_takes_as_long_as_expected_ends_within_one_percent(stop_s: float, per_hour: float) -> None:
    use = BudgetUse(100.0, "EUR", 3.0, per_hour)
    begun = use.later(use.due_in_s(stop_s))
    assert begun.used >= 99.0 - 1e-9 and begun.due_in_s(stop_s) < 1e-6 and begun.is_used_up == (begun.used >= 99.0)
    if stop_s * per_hour / HOUR_S <= 2.0:  # the stop takes at most 2 % of the budget
        assert begun.later(stop_s).used <= 101.0 + 1e-9


@pytest.mark.parametrize(
    ("use", "is_used_up"),
    [
        (BudgetUse(100, "EUR", 98.99), False),
        (BudgetUse(100, "EUR", 99.0), True),
        (BudgetUse(100, "EUR", 150.0), True),
        (BudgetUse(100, "EUR", 0.0, 0.0, ("A100",)), True),
    ],
)
def test_a_budget_is_used_up_at_99_percent_or_if_its_cost_is_unknown(use: BudgetUse, is_used_up: bool) -> None:
    assert use.is_used_up is is_used_up
    assert not use.unpriced or use.due_in_s(5.0) == 0.0


def test_readings_become_more_frequent_towards_the_end() -> None:
    def reading_s(used: float) -> float:
        return next_reading_s([BudgetUse(100, "EUR", used, 3600.0)], 0.0, (0.2, 5.0))

    assert [reading_s(used) for used in (0.0, 90.0, 99.9, 100.0)] == [5.0, 2.5, 0.2, 0.2]
    assert next_reading_s([], 0.0, (0.2, 5.0)) == 5.0


def test_the_text_has_the_use_and_the_limit() -> None:
    assert str(BudgetUse(1500, "EUR", 1490.123)) == "used 1,490.12 of 1,500.00 EUR"
    assert str(BudgetUse(0.01, "device-hours", 0.00993)) == "used 0.00993 of 0.01 device-hours"


@pytest.mark.parametrize(
    ("device", "accelerator", "prices", "problem"),
    [
        ("cuda", "H100", PRICES, None),
        ("cpu", None, PRICES, None),
        ("cuda", "A100", PRICES, "accelerator A100 has no price; accelerators with a price: H100, cpu"),
        ("cuda", None, PRICES, "set resources.accelerator to one with a price"),
        ("cpu", None, PriceTable(currency="EUR", device_hour={"H100": 1.0}), "`cpu` has no price"),
        ("cuda", "H100", None, "this server has no price table"),
    ],
)
def test_devices_whose_cost_would_be_unknown_are_named(
    device: str, accelerator: str | None, prices: PriceTable | None, problem: str | None
) -> None:
    found = find_unpriced(device, accelerator, prices)
    assert (found is None) if problem is None else (found is not None and problem in found)
