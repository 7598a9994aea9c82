"""Use cases of projects, and the limits and defaults that they apply to jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from regroup.service.cluster_state.budgets import project_budget_of
from regroup.service.domain.author import Author
from regroup.service.domain.errors import FieldIssue, ForbiddenError, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.policy.scheduling.entries import Priority
from regroup.service.policy.usage.budget import measure_use
from regroup.service.spec.clusters import ONE_CLUSTER, ClusterNames
from regroup.service.spec.issues import issues_of
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.prices import PriceTable
from regroup.service.spec.project_limits import ProjectLimits
from regroup.service.store.rows.records import AllocationKind, ProjectRow
from regroup.service.store.store import Store

_NO_DEFAULT = ("name", "project", "version")
"""Fields for which a project cannot set a default."""


@dataclass(frozen=True)
class ProjectState:
    """A project and its use."""

    row: ProjectRow
    allocated: int = 0
    """Number of devices that are allocated to its jobs."""
    running: int = 0
    """Number of jobs with devices."""
    queued: int = 0
    """Number of queued jobs."""
    budget_used: float | None = None
    """Use of its budget, in the unit of the budget; None if it has none."""


@dataclass
class _Usage:
    allocated: int = 0
    running: set[str] = field(default_factory=set[str])
    queued: int = 0


class Projects:
    """Use cases of projects.

    Args:
        clock: Unix seconds.
        prices: price table; None if the operator set none.
    """

    def __init__(self, store: Store, clock: Callable[[], float], prices: PriceTable | None = None) -> None:
        self._store, self._clock, self._prices = store, clock, prices

    async def list_projects(self) -> list[ProjectState]:
        """Return the projects that have settings or unfinished jobs, by name."""
        rows = {row.name: row for row in await self._store.queue.projects()}
        usage: dict[str, _Usage] = {name: _Usage() for name in rows}
        live = {job.id: job.project for job in await self._store.live_jobs()}
        for project, count in (await self._store.queue.count_jobs()).items():
            usage.setdefault(project, _Usage()).queued = count
        for row in await self._store.live_allocations():
            if row.kind is AllocationKind.RESERVATION and row.job_id in live:
                project = usage.setdefault(live[row.job_id], _Usage())
                project.allocated += int(row.data.get("ranks", 0))
                project.running.add(row.job_id)
        return [
            ProjectState(
                row := rows.get(name, ProjectRow(name)), each.allocated, len(each.running), each.queued,
                await self._budget_used(row),
            )
            for name, each in sorted(usage.items())
        ]  # fmt: skip

    async def get(self, name: str) -> ProjectState:
        """Return the project. A project without settings has no limits."""
        return next(
            (each for each in await self.list_projects() if each.row.name == name), ProjectState(ProjectRow(name))
        )

    async def put(self, row: ProjectRow, *, author: Author) -> ProjectState:
        """Create or change a project. Running jobs continue even above a lowered limit.

        Raises:
            SpecError: the settings contradict each other, or a default is not a field of a spec.
        """
        if issues := [*_contradictions(row), *_wrong_defaults(row.defaults), *self._unpriced(row)]:
            raise SpecError(issues)
        await self._store.queue.put_project(row, now=self._clock(), author=author)
        return await self.get(row.name)

    async def remove(self, name: str, *, author: Author) -> None:
        """Delete the settings of a project. Raises the errors of `QueueStore.remove_project`."""
        await self._store.queue.remove_project(name, now=self._clock(), author=author)

    def _unpriced(self, row: ProjectRow) -> list[FieldIssue]:
        if self._prices is not None or not (row.budget or {}).get("cost"):
            return []
        message = "this server has no price table: use device_hours, or set REGROUP_PRICES"
        return [FieldIssue.at(("budget", "cost"), message, (row.budget or {}).get("cost"))]

    async def _budget_used(self, row: ProjectRow) -> float | None:
        if (budget := project_budget_of(row)) is None:
            return None
        use = await self._store.usage.of_project(row.name, budget.since, now=self._clock())
        return measure_use(budget, use.seconds, use.held, self._prices).used


def apply_project(spec: JobSpec, project: ProjectRow, clusters: ClusterNames = ONE_CLUSTER) -> JobSpec:
    """Fill in the project's defaults for the fields that the spec does not set, and check the project's limits.

    A spec that names the default cluster is returned without it.

    Raises:
        ForbiddenError: the project does not allow the device, the priority, the interpreter, the image or the cluster.
        SpecError: the job is too large for the project, a default is invalid in this spec, or the server does not have
            the cluster.
    """
    if project.defaults:
        spec = parse_spec(_merged(project.defaults, spec.model_dump(mode="json", exclude_unset=True)))
    admits, name = ProjectLimits.model_validate(project.admits), project.name
    if admits.devices is not None and spec.resources.device not in admits.devices:
        allowed = ", ".join(admits.devices) or "none"
        raise ForbiddenError(
            f"device {spec.resources.device} is not allowed in project {name!r}; allowed devices: {allowed}"
        )
    highest = admits.max_priority
    if highest is not None and Priority[spec.priority] > Priority[highest]:
        raise ForbiddenError(
            f"priority {spec.priority} is not allowed in project {name!r}; the highest allowed priority is {highest}"
        )
    interpreter = spec.environment.interpreter
    if interpreter is not None and admits.interpreters is not None and interpreter not in admits.interpreters:
        allowed = ", ".join(admits.interpreters) or "only the platform's"
        raise ForbiddenError(
            f"interpreter {interpreter} is not allowed in project {name!r}; allowed interpreters: {allowed}"
        )
    if admits.images is not None:
        _check_allowed("environment.image", "images", spec.environment.image, admits.images, name)
    if admits.accelerators is not None and spec.resources.device == "cuda":
        _check_allowed("resources.accelerator", "accelerators", spec.resources.accelerator, admits.accelerators, name)
    _check_size(spec, project, admits.max_ranks)
    return _with_cluster(spec, project.name, admits.clusters, clusters)


def check_resize(layout: Layout, project: ProjectRow) -> None:
    """Raise SpecError if a job of this size exceeds the project's limit.

    A layout with other tensor and pipeline degrees can be larger than every layout of the spec.
    """
    largest = ProjectLimits.model_validate(project.admits).max_ranks
    if largest is not None and layout.world_size > largest:
        message = f"too many ranks: project {project.name!r} allows {largest} per job, {layout} has {layout.world_size}"
        raise SpecError([FieldIssue("dp", message, layout.world_size)])


def max_ranks(project: ProjectRow) -> int | None:
    """Return the maximum number of ranks of one of the project's jobs; None for no limit."""
    return min(
        (most for most in (ProjectLimits.model_validate(project.admits).max_ranks, project.limit) if most), default=None
    )


def _with_cluster(spec: JobSpec, project: str, allowed: Sequence[str] | None, clusters: ClusterNames) -> JobSpec:
    named = spec.resources.cluster
    if problem := clusters.find_problem(named):
        raise SpecError([FieldIssue.at(("resources", "cluster"), problem, named)])
    if allowed is not None:
        _check_allowed("resources.cluster", "clusters", named or clusters.default, allowed, project)
    if named != clusters.default:
        return spec
    return spec.model_copy(update={"resources": spec.resources.model_copy(update={"cluster": None})})


def _check_allowed(field: str, kind: str, value: str | None, allowed: Sequence[str], project: str) -> None:
    """Raise ForbiddenError if the value is not allowed. A spec without a value could get any, so it is refused too."""
    if value not in allowed:
        names, requested = ", ".join(allowed) or "none", "any" if value is None else value
        raise ForbiddenError(
            f"{field}: {requested} is not allowed in project {project!r}; set one of the allowed {kind}: {names}"
        )


def _check_size(spec: JobSpec, project: ProjectRow, largest: int | None) -> None:
    if spec.layout.auto is not None:
        return  # the planner chooses the size later
    sizes = [layout.world_size for layout in spec.ladder]
    if largest is not None and sizes[-1] > largest:
        message = f"too many ranks: project {project.name!r} allows {largest} per job, this job can grow to {sizes[-1]}"
        raise SpecError([FieldIssue("layout", message, sizes[-1])])
    if project.limit is not None and sizes[0] > project.limit:
        message = (
            f"too many devices: the limit of project {project.name!r} is {project.limit}, "
            f"this job needs at least {sizes[0]}"
        )
        raise SpecError([FieldIssue("layout", message, sizes[0])])


def _contradictions(row: ProjectRow) -> list[FieldIssue]:
    found: list[FieldIssue] = []
    if row.limit is not None and row.limit < row.guaranteed:
        found.append(FieldIssue("limit", f"must be at least guaranteed = {row.guaranteed}", row.limit))
    if row.borrowable is not None and row.borrowable > row.guaranteed:
        found.append(FieldIssue("borrowable", f"must be at most guaranteed = {row.guaranteed}", row.borrowable))
    return found


def _wrong_defaults(defaults: Mapping[str, Any]) -> list[FieldIssue]:
    """Return the defaults that are invalid in every spec. Conflicts with a job's own fields show at submit time."""
    for name in _NO_DEFAULT:
        if name in defaults:
            return [FieldIssue(f"defaults.{name}", "cannot have a default: each job sets it", defaults[name])]
    spec = {"name": "x", **defaults}
    try:
        JobSpec.model_validate(spec)
    except ValidationError as error:
        wrong = [item for item in error.errors(include_url=False) if item["type"] != "missing"]
        issues = issues_of(wrong, spec, ("defaults",))
        return [issue for issue in issues if len(issue.location) > 1 and issue.location[1] in defaults]
    return []


def _merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `own` over `defaults`, field by field."""
    both = {**defaults, **own}
    for name in defaults.keys() & own.keys():
        default, value = defaults[name], own[name]
        if isinstance(default, Mapping) and isinstance(value, Mapping):
            both[name] = _merged(cast(Mapping[str, Any], default), cast(Mapping[str, Any], value))
    return both
