"""Budgets in a spec and of a project: one unit, bounds, and the time from which use counts."""

from typing import Any

import pytest
from pydantic import ValidationError

from regroup.service.domain.errors import SpecError
from regroup.service.spec.budget import ProjectBudget, UsageBudget
from regroup.service.spec.job import JobSpec, parse_spec


def spec_with(budget: Any) -> JobSpec:
    training = {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
    workload = {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}
    return parse_spec({"name": "gpt", "workload": workload, "training": training, "budget": budget})


@pytest.mark.parametrize(
    ("budget", "amount"),
    [({"device_hours": 0.5}, 0.5), ({"cost": 250}, 250.0), ({"device_hours": 3, "cost": None}, 3.0)],
)
def test_a_budget_has_one_unit(budget: Any, amount: float) -> None:
    found = spec_with(budget).budget
    assert found is not None and found.amount == amount
    assert UsageBudget.model_validate(found.model_dump(mode="json")) == found
    assert spec_with(None).budget is None


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "budget: needs either device_hours or cost"),
        ({"device_hours": 1, "cost": 1}, "budget: needs either device_hours or cost"),
        ({"device_hours": 0}, "budget.device_hours: must be > 0"),
        ({"cost": -1}, "budget.cost: must be > 0"),
        ({"cost": 1e13}, "budget.cost: must be ≤"),
        ({"cost": "1"}, "budget.cost: must be a number"),
        ({"cost": True}, "budget.cost: must be a number"),
        ({"euros": 1}, "budget.euros: unknown field"),
        (5, "budget: must be a mapping"),
    ],
)
def test_a_wrong_budget_is_refused_with_its_field(budget: Any, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_with(budget)
    assert message in str(refused.value), str(refused.value)


@pytest.mark.parametrize(
    ("since", "seconds"),
    [
        ("2026-11-01", 1793491200.0), ("2026-11-01T01:00+01:00", 1793491200.0), (1793491200, 1793491200.0), (0, 0.0),
    ],
)  # fmt: skip
def test_use_counts_from_a_time(since: Any, seconds: float) -> None:
    assert ProjectBudget.model_validate({"cost": 1, "since": since}).since == seconds


@pytest.mark.parametrize("since", ["november", -1, True, "", "1969-01-01", 1e13, float("nan")])
def test_a_wrong_time_is_refused(since: Any) -> None:
    with pytest.raises(ValidationError):
        ProjectBudget.model_validate({"cost": 1, "since": since})
