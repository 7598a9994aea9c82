"""Use cases of budgets: refuse those that cannot be measured, and change the budget of a job."""

from regroup.service.cluster_state.budgets import project_budget_of
from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, FieldIssue, SpecError
from regroup.service.policy.usage.budget import find_unpriced
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.job import JobSpec
from regroup.service.spec.prices import PriceTable
from regroup.service.store.projects import BUDGET
from regroup.service.store.rows.records import JobRow, ProjectRow
from regroup.service.store.store import Store


def check_budgets(spec: JobSpec, project: ProjectRow, prices: PriceTable | None) -> None:
    """Check that a budget in money, of the job or of its project, can be measured.

    Raises:
        SpecError: the job may get devices without a price.
    """
    _check_cost(spec.budget, spec, prices, ("budget", "cost"), "")
    shared = f"project {project.name!r} has a budget in money, and "
    _check_cost(project_budget_of(project), spec, prices, ("resources",), shared)


async def set_budget(
    store: Store, job: JobRow, budget: UsageBudget, prices: PriceTable | None, *, now: float, author: Author
) -> JobRow:
    """Replace the budget of a job that has not ended. If it was suspended at its budget, it continues by itself.

    Raises:
        SpecError: the job may get devices without a price.
        ConflictError: the job has ended.
    """
    _check_cost(budget, job.parsed_spec(), prices, ("cost",), "")

    def change(row: JobRow) -> dict[str, object]:
        if row.state.is_terminal:
            raise ConflictError(f"job {row.id} is {row.state}: only a job that has not ended has a budget to change")
        return {BUDGET: budget.model_dump(mode="json", exclude_none=True)}

    return await store.intend(job.id, change, now=now, author=author, action="jobs.budget")


def _check_cost(
    budget: UsageBudget | None, spec: JobSpec, prices: PriceTable | None, location: tuple[str, ...], prefix: str
) -> None:
    if budget is None or budget.cost is None:
        return
    if problem := find_unpriced(spec.resources.device, spec.resources.accelerator, prices):
        value = budget.cost if location[-1] == "cost" else None
        raise SpecError([FieldIssue.at(location, f"{prefix}{problem}", value)])
