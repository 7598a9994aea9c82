"""Budgets in a simulation, with the decisions of the service."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from regroup.service.policy.usage.budget import BudgetUse, measure_use
from regroup.service.policy.usage.report import HOUR_S
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.prices import PriceTable

_DEVICE = "device"
"""All devices of a simulated cluster have one price."""
_LEAST_S = 1.0
"""Shortest time until a planned check."""


@dataclass(frozen=True)
class Budgets:
    """Budgets of the projects of a simulation."""

    projects: Mapping[str, UsageBudget] = field(default_factory=dict[str, UsageBudget])
    price: float | None = None
    """Price of a device-hour; None if there is none."""

    @property
    def prices(self) -> PriceTable | None:
        """Price table of the cluster."""
        return None if self.price is None else PriceTable(currency="XXX", device_hour={_DEVICE: self.price})


@dataclass
class _Account:
    """Devices that a job or a project holds, and its device-seconds so far."""

    budget: UsageBudget | None
    devices: int = 0
    seconds: float = 0.0
    since_s: float = 0.0

    def seconds_at(self, now_s: float) -> float:
        return self.seconds + self.devices * (now_s - self.since_s)

    def add(self, devices: int, now_s: float) -> None:
        self.seconds, self.since_s = self.seconds_at(now_s), now_s
        self.devices += devices


class BudgetUses:
    """Use of the budgets of a simulation.

    Args:
        jobs: job id → its project and its budget.
    """

    def __init__(self, budgets: Budgets, jobs: Mapping[str, tuple[str, UsageBudget | None]]) -> None:
        self._prices = budgets.prices
        self._projects = {name: _Account(budget) for name, budget in budgets.projects.items()}
        limited = {job_id for job_id, (project, own) in jobs.items() if own is not None or project in self._projects}
        self._jobs = {job_id: _Account(jobs[job_id][1]) for job_id in limited}
        self._project_of = {job_id: jobs[job_id][0] for job_id in limited}
        self._live = set[str]()

    def set_devices(self, job_id: str, devices: int, now_s: float) -> None:
        """Record the number of devices that a job holds from now on."""
        if (job := self._jobs.get(job_id)) is None:
            return
        for account in self._accounts(job_id)[1:]:
            account.add(devices - job.devices, now_s)
        job.add(devices - job.devices, now_s)
        if devices:
            self._live.add(job_id)
        else:
            self._live.discard(job_id)

    def is_used_up(self, job_id: str, now_s: float) -> bool:
        """Return whether a job must not start."""
        return any(use.is_used_up for use in self._uses(job_id, now_s))

    def due_jobs(self, now_s: float, stop_s: float) -> list[str]:
        """Return the jobs with devices that must begin to stop."""
        return [job_id for job_id in sorted(self._live) if self._due_in_s(job_id, now_s, stop_s) <= 0]

    def next_due_s(self, now_s: float, stop_s: float) -> float | None:
        """Return the next time at which a job must begin to stop; None if none must."""
        left_s = [self._due_in_s(job_id, now_s, stop_s) for job_id in self._live]
        soonest_s = min((each for each in left_s if each > 0), default=math.inf)
        return None if math.isinf(soonest_s) else now_s + max(soonest_s, _LEAST_S)

    def project_device_hours(self, now_s: float) -> dict[str, float]:
        """Return the device-hours of each project that has a budget."""
        return {name: account.seconds_at(now_s) / HOUR_S for name, account in sorted(self._projects.items())}

    def _accounts(self, job_id: str) -> list[_Account]:
        """Return the account of the job, and that of its project if it has a budget."""
        shared = self._projects.get(self._project_of[job_id])
        return [self._jobs[job_id]] if shared is None else [self._jobs[job_id], shared]

    def _uses(self, job_id: str, now_s: float) -> list[BudgetUse]:
        if job_id not in self._jobs:
            return []
        return [
            measure_use(each.budget, {_DEVICE: each.seconds_at(now_s)}, {_DEVICE: each.devices}, self._prices)
            for each in self._accounts(job_id)
            if each.budget is not None
        ]

    def _due_in_s(self, job_id: str, now_s: float, stop_s: float) -> float:
        return min((use.due_in_s(stop_s) for use in self._uses(job_id, now_s)), default=math.inf)
