"""Budgets in a simulation: jobs are suspended within 1 % of a budget, and none starts while it is used up."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.domain.topology import Node
from regroup.service.policy.scheduling.entries import Priority, RunningJob, WaitingJob
from regroup.service.simulator.budgets import Budgets
from regroup.service.simulator.simulator import Arrival, Costs, Outage, simulate
from regroup.service.simulator.traces import budgets_of, read_cluster, read_jobs
from regroup.service.spec.budget import UsageBudget
from tests.support.inputs.queue_inputs import node, sizes

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def arrival(name: str, at_s: float, work_s: float, ranks: int, **fields: object) -> Arrival:
    budget = fields.pop("budget", None)
    assert budget is None or isinstance(budget, UsageBudget)
    job = WaitingJob(name, name, sizes(ranks), queued_s=at_s)
    return Arrival(at_s, replace(job, **fields), work_s, budget)


@pytest.mark.parametrize("suspend_s", [0.0, 60.0, 300.0])
@pytest.mark.parametrize("price", [None, 2.0])
def test_a_project_ends_within_one_percent_of_its_budget(suspend_s: float, price: float | None) -> None:
    budget = UsageBudget(device_hours=100) if price is None else UsageBudget(cost=200)
    arrivals = [arrival(f"a{number}", number * HOUR_S, 50 * HOUR_S, 4, project="vision") for number in range(4)]
    report = simulate(
        [node("n", 16)], arrivals, budgets=Budgets({"vision": budget}, price), until_s=4 * DAY_S,
        costs=Costs(suspend_s=suspend_s),
    )  # fmt: skip
    assert report.budget_suspensions == 4 and report.finished == 0 and report.suspended == 0
    assert abs(report.project_device_hours["vision"] - 100.0) <= 1.0


def test_a_job_is_suspended_at_its_own_budget_and_others_continue() -> None:
    seen: dict[str, float] = {}

    def observe(now_s: float, nodes: Sequence[Node], running: Sequence[RunningJob]) -> None:
        seen.update({job.job_id: now_s for job in running})

    limited = arrival("limited", 0, 20 * HOUR_S, 4, budget=UsageBudget(device_hours=40))
    report = simulate(
        [node("n", 8)], [limited, arrival("free", 0, 20 * HOUR_S, 4)], until_s=3 * DAY_S, observe=observe
    )  # fmt: skip
    assert (report.finished, report.budget_suspensions) == (1, 1)
    assert abs(seen["limited"] / HOUR_S - 10.0) <= 0.1
    assert report.utilisation == pytest.approx((40 + 80) / (8 * 72), rel=0.01), "the other job has used 80 device-hours"


def test_no_job_starts_while_the_budget_of_its_project_is_used_up() -> None:
    budgets = Budgets({"vision": UsageBudget(device_hours=8)})
    jobs = [
        arrival("first", 0, 5 * HOUR_S, 8, project="vision"),
        arrival("late", 3 * HOUR_S, HOUR_S, 1, project="vision"),
    ]
    report = simulate([node("n", 8)], jobs, budgets=budgets, until_s=DAY_S)
    assert (report.never_started, report.budget_suspensions) == (1, 1)
    assert report.longest_waiting_s > 20 * HOUR_S
    ends = simulate([node("n", 8)], [arrival("a", 0, HOUR_S / 2, 8, project="vision")], budgets=budgets, until_s=DAY_S)
    assert (ends.finished, ends.budget_suspensions) == (1, 0)
    assert ends.project_device_hours["vision"] == pytest.approx(4.0, abs=0.1)


def test_use_counts_through_preemption_and_failures() -> None:
    own = UsageBudget(device_hours=40)
    arrivals = [
        arrival("low", 0, 50 * HOUR_S, 8, priority=Priority.low, budget=own),
        arrival("high", 2 * HOUR_S, HOUR_S, 8, priority=Priority.high),
    ]
    outages = [Outage(4 * HOUR_S, "n", HOUR_S)]
    budgets = Budgets({"default": UsageBudget(device_hours=1000)})
    report = simulate([node("n", 8)], arrivals, outages, budgets=budgets, until_s=3 * DAY_S)
    assert (report.finished, report.suspended, report.failures, report.budget_suspensions) == (1, 1, 1, 1)
    assert report.project_device_hours["default"] == pytest.approx(40.0 + 8.0, rel=0.01)


def test_budgets_are_read_from_the_cluster_and_the_trace(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("{nodes: 1, price: 2, projects: {a: {budget: {cost: 50}}, b: {guaranteed: 1}}}")
    found = budgets_of(read_cluster(tmp_path / "c.yaml"))
    assert found == Budgets({"a": UsageBudget(cost=50)}, 2.0)
    (tmp_path / "jobs.csv").write_text("at_s,name,ranks,work_s,budget_device_hours\n0,a,1,60,2.5\n0,b,1,60,\n")
    assert [each.budget for each in read_jobs(tmp_path / "jobs.csv")] == [UsageBudget(device_hours=2.5), None]
    (tmp_path / "c.yaml").write_text("{nodes: 1, projects: {a: {budget: {cost: 50}}}}")
    with pytest.raises(SpecError, match=r"projects\.a\.budget\.cost: needs the `price` of a device-hour"):
        budgets_of(read_cluster(tmp_path / "c.yaml"))
