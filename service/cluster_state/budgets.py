"""The use of the budgets of jobs and projects. Readings are reused for a time that depends on what is left."""

import asyncio
from dataclasses import dataclass

import structlog

from regroup.service.policy.usage.budget import BudgetUse, measure_use, next_reading_s
from regroup.service.spec.budget import ProjectBudget, UsageBudget
from regroup.service.spec.prices import PriceTable
from regroup.service.store.projects import BUDGET
from regroup.service.store.rows.records import WITHIN_BUDGET, Condition, JobRow, ProjectRow
from regroup.service.store.store import Store
from regroup.service.store.transactions.connection_share import without_limit
from regroup.service.store.usage import Use

JOB_BUDGET, PROJECT_BUDGET, NO_PRICE = "job_budget", "project_budget", "no_price"
"""Reasons of the condition `WithinBudget`."""
READING_BOUNDS_S = (0.2, 5.0)
"""Shortest and longest time until a use is read again."""
_PROJECTS_EVERY_S = 1.0
_STOP_S = 5.0
_MOST_IDLE = 10_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class NamedUse:
    """Use of one budget that limits a job."""

    use: BudgetUse
    reason: str
    """`job_budget` or `project_budget`."""
    subject: str
    """Subject of a sentence about the budget."""
    remedy: str

    @property
    def message(self) -> str:
        """Use of the budget, with the remedy."""
        if self.use.unpriced:
            names = ", ".join(self.use.unpriced)
            return f"{self.subject} used devices without a price ({names}); the operator can add it to REGROUP_PRICES"
        return f"{self.subject} {self.use}; {self.remedy}"

    @property
    def condition(self) -> Condition:
        """Condition of a job that this budget keeps from its devices."""
        return Condition(WITHIN_BUDGET, False, NO_PRICE if self.use.unpriced else self.reason, self.message)


def budget_of(job: JobRow) -> UsageBudget | None:
    """Return the budget of a job: that of a later request, else that of its spec.

    Raises:
        ValueError: the stored budget is damaged.
    """
    stored = job.intents.get(BUDGET) or job.spec.get("budget")
    return None if stored is None else UsageBudget.model_validate(stored)


def project_budget_of(project: ProjectRow) -> ProjectBudget | None:
    """Return the budget of a project. Raises ValueError if it is damaged."""
    return None if project.budget is None else ProjectBudget.model_validate(project.budget)


@dataclass(frozen=True)
class _Reading:
    budget: ProjectBudget
    use: BudgetUse
    at_s: float
    valid_s: float


class BudgetReader:
    """Reads the use of budgets. Jobs without one, in projects without one, cost no query.

    Args:
        prices: price table; None if the operator set none.
    """

    def __init__(self, store: Store, prices: PriceTable | None) -> None:
        self._store, self._prices = store, prices
        self._projects: dict[str, ProjectBudget] = {}
        self._projects_at_s: float | None = None
        self._readings: dict[str, _Reading] = {}
        """Project → its latest reading."""
        self._idle: dict[tuple[str, int], Use] = {}
        """Id and version of a job without devices → its use."""
        self._lock = asyncio.Lock()

    async def read_projects(self, now: float) -> None:
        """Read the budgets of the projects, at most every second."""
        if self._is_recent(now):
            return
        async with self._lock:
            with without_limit():
                await self._read_projects(now)

    async def _read_projects(self, now: float) -> None:
        if self._is_recent(now):  # another task was first
            return
        found = dict[str, ProjectBudget]()
        for row in await self._store.queue.projects():
            try:
                budget = project_budget_of(row)
            except ValueError as error:
                budget = self._projects.get(row.name)
                _log.error("the budget of a project is damaged; set it again", project=row.name, error=str(error))
            if budget is not None:
                found[row.name] = budget
        self._projects, self._projects_at_s = found, now
        self._readings = {name: each for name, each in self._readings.items() if name in found}

    def limits(self, job: JobRow) -> bool:
        """Return whether a budget limits the job, as of the latest `read_projects`."""
        return bool(job.intents.get(BUDGET) or job.spec.get("budget") or job.project in self._projects)

    async def uses_of(self, job: JobRow, now: float) -> list[NamedUse]:
        """Return the use of the budgets that limit a job: its own, and that of its project.

        Raises:
            ValueError: a stored budget is damaged.
        """
        found = list[NamedUse]()
        if (own := budget_of(job)) is not None:
            use = await self._use_of(job, now)
            measured = measure_use(own, use.seconds, use.held, self._prices)
            option = "--device-hours" if own.device_hours is not None else "--cost"
            remedy = f"`regroup budget {job.id} {option} N` sets a higher budget"
            found.append(NamedUse(measured, JOB_BUDGET, "the job", remedy))
        if (shared := await self._project_use(job.project, now)) is not None:
            found.append(shared)
        return found

    async def used_up(self, job: JobRow, now: float) -> NamedUse | None:
        """Return a budget that keeps the job from devices; None if none does. Raises the errors of `uses_of`."""
        return next((each for each in await self.uses_of(job, now) if each.use.is_used_up), None)

    def _is_recent(self, now: float) -> bool:
        return self._projects_at_s is not None and 0 <= now - self._projects_at_s < _PROJECTS_EVERY_S

    async def _use_of(self, job: JobRow, now: float) -> Use:
        if job.version == 1:  # no devices were ever allocated
            return Use({}, {})
        if job.state.has_allocations:
            return await self._store.usage.of_job(job.id, now=now)
        key = job.id, job.version
        if key not in self._idle:
            if len(self._idle) >= _MOST_IDLE:
                self._idle.clear()
            self._idle[key] = await self._store.usage.of_job(job.id, now=now)
        return self._idle[key]

    async def _project_use(self, project: str, now: float) -> NamedUse | None:
        await self.read_projects(now)
        async with self._lock:
            if (budget := self._projects.get(project)) is None:
                return None
            reading = self._readings.get(project)
            if reading is None or reading.budget != budget or not 0 <= now - reading.at_s < reading.valid_s:
                with without_limit():
                    use = await self._store.usage.of_project(project, budget.since, now=now)
                measured = measure_use(budget, use.seconds, use.held, self._prices)
                valid_s = next_reading_s([measured], _STOP_S, READING_BOUNDS_S)
                reading = self._readings[project] = _Reading(budget, measured, now, valid_s)
        field = "device_hours" if budget.device_hours is not None else "cost"
        remedy = f"an operator sets a higher budget with `regroup projects set {project} budget.{field}=N`"
        return NamedUse(reading.use.later(now - reading.at_s), PROJECT_BUDGET, f"project {project!r}", remedy)
