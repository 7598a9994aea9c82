"""What can be asked of projects, and what they let their jobs ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError

from regroup.service.domain.errors import FieldIssue, ForbiddenError, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.policy.scheduling.entries import Priority
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.project_limits import ProjectLimits
from regroup.service.store.records import AllocationKind, ProjectRow
from regroup.service.store.store import Store

_ITS_OWN = ("name", "project", "version")
"""Fields that no default stands for."""


@dataclass(frozen=True)
class ProjectState:
    """A project, and who uses it."""

    row: ProjectRow
    held: int = 0
    """Devices that its jobs hold."""
    running: int = 0
    """Jobs that hold devices."""
    queued: int = 0
    """Jobs that wait."""


@dataclass
class _Use:
    held: int = 0
    running: set[str] = field(default_factory=set[str])
    queued: int = 0


class Projects:
    """Asks of people, answered from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[ProjectState]:
        """Projects that were set up or have jobs that did not end, by name."""
        rows = {row.name: row for row in await self._store.queue.projects()}
        use: dict[str, _Use] = {name: _Use() for name in rows}
        live = {job.id: job.project for job in await self._store.live_jobs()}
        for job in await self._store.queued_jobs():
            use.setdefault(job.project, _Use()).queued += 1
        for row in await self._store.live_allocations():
            if row.kind is AllocationKind.RESERVATION and row.job_id in live:
                mine = use.setdefault(live[row.job_id], _Use())
                mine.held += int(row.data["ranks"])
                mine.running.add(row.job_id)
        return [
            ProjectState(rows.get(name, ProjectRow(name)), each.held, len(each.running), each.queued)
            for name, each in sorted(use.items())
        ]

    async def get(self, name: str) -> ProjectState:
        """The project; one that was not set up may hold and ask for everything."""
        return next((each for each in await self.all() if each.row.name == name), ProjectState(ProjectRow(name)))

    async def put(self, row: ProjectRow) -> ProjectState:
        """Set a project up, or change it. What runs runs on, also above a lowered limit: nothing more starts then.

        Raises:
            SpecError: its numbers contradict each other, or a default is no field of a spec.
        """
        if issues := [*_contradictions(row), *_wrong_defaults(row.defaults)]:
            raise SpecError(issues)
        await self._store.queue.put_project(row)
        return await self.get(row.name)

    async def remove(self, name: str) -> None:
        """Forget a project; see `QueueStore.remove_project` for what it raises."""
        await self._store.queue.remove_project(name)


def admitted(spec: JobSpec, project: ProjectRow) -> JobSpec:
    """The spec with the project's defaults where it names no value itself.

    Raises:
        ForbiddenError: the project's jobs may not ask for such nodes, that priority or interpreter.
        SpecError: it is larger than the project lets its jobs be, or a default does not go with it.
    """
    if project.defaults:
        spec = parse_spec(_merged(project.defaults, spec.model_dump(mode="json", exclude_unset=True)))
    admits, name = ProjectLimits.model_validate(project.admits), project.name
    if admits.devices is not None and spec.resources.device not in admits.devices:
        allowed = ", ".join(admits.devices) or "none"
        raise ForbiddenError(f"jobs of project {name!r} may use devices {allowed}, not {spec.resources.device}")
    highest = admits.max_priority
    if highest is not None and Priority[spec.priority] > Priority[highest]:
        raise ForbiddenError(f"jobs of project {name!r} may have priority {highest} at most, not {spec.priority}")
    interpreter = spec.environment.interpreter
    if interpreter is not None and admits.interpreters is not None and interpreter not in admits.interpreters:
        allowed = ", ".join(admits.interpreters) or "none but the platform's"
        raise ForbiddenError(f"jobs of project {name!r} may run in {allowed}, not in {interpreter}")
    if admits.images is not None:
        _check_named("environment.image", "images", spec.environment.image, admits.images, name)
    if admits.accelerators is not None and spec.resources.device == "cuda":
        _check_named("resources.accelerator", "accelerators", spec.resources.accelerator, admits.accelerators, name)
    _check_size(spec, project, admits.max_ranks)
    return spec


def check_resize(layout: Layout, project: ProjectRow) -> None:
    """Raises SpecError if the project does not let a job be so large: a layout that is split otherwise may be larger
    than all that it came with."""
    largest = ProjectLimits.model_validate(project.admits).max_ranks
    if largest is not None and layout.world_size > largest:
        say = f"jobs of project {project.name!r} have {largest} ranks at most; this is {layout.world_size}: {layout}"
        raise SpecError([FieldIssue("dp", say, layout.world_size)])


def most_ranks(project: ProjectRow) -> int | None:
    """Of one of the project's jobs; None where nothing bounds it."""
    return min(
        (most for most in (ProjectLimits.model_validate(project.admits).max_ranks, project.limit) if most), default=None
    )


def _check_named(field: str, what: str, said: str | None, admitted: Sequence[str], project: str) -> None:
    """Where a project bounds them, a job that names none might get any."""
    if said not in admitted:
        allowed, asked = ", ".join(admitted) or "none", "any" if said is None else said
        raise ForbiddenError(f"jobs of project {project!r} may use {what} {allowed}, not {asked}: say {field}")


def _check_size(spec: JobSpec, project: ProjectRow, largest: int | None) -> None:
    if spec.layout.auto is not None:
        return  # it has no size yet
    sizes = [layout.world_size for layout in spec.ladder]
    if largest is not None and sizes[-1] > largest:
        say = f"jobs of project {project.name!r} have {largest} ranks at most; this one may grow to {sizes[-1]}"
        raise SpecError([FieldIssue("layout", say, sizes[-1])])
    if project.limit is not None and sizes[0] > project.limit:
        say = f"project {project.name!r} may hold {project.limit} devices; the job needs {sizes[0]} at least"
        raise SpecError([FieldIssue("layout", say, sizes[0])])


def _contradictions(row: ProjectRow) -> list[FieldIssue]:
    found: list[FieldIssue] = []
    if row.limit is not None and row.limit < row.guaranteed:
        say = f"is below what is guaranteed: {row.guaranteed}"
        found.append(FieldIssue("limit", say, row.limit))
    if row.borrowable is not None and row.borrowable > row.guaranteed:
        say = f"others can borrow what is guaranteed and not used, {row.guaranteed} at most"
        found.append(FieldIssue("borrowable", say, row.borrowable))
    return found


def _wrong_defaults(defaults: Mapping[str, Any]) -> list[FieldIssue]:
    """What could not be right in any spec; that a default goes with a job's own fields is seen when one comes."""
    for name in _ITS_OWN:
        if name in defaults:
            return [FieldIssue(f"defaults.{name}", "is each job's own; no default stands for it", defaults[name])]
    try:
        JobSpec.model_validate({"name": "x", **defaults})
    except ValidationError as error:
        issues = [(".".join(str(part) for part in item["loc"]), item) for item in error.errors(include_url=False)]
        return [
            FieldIssue(f"defaults.{path}", "unknown field" if item["type"] == "extra_forbidden" else item["msg"], None)
            for path, item in issues
            if path.partition(".")[0] in defaults and item["type"] != "missing"
        ]
    return []


def _merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own`, and what it does not name; mappings field by field."""
    both = {**defaults, **own}
    for name in defaults.keys() & own.keys():
        default, said = defaults[name], own[name]
        if isinstance(default, Mapping) and isinstance(said, Mapping):
            both[name] = _merged(cast(Mapping[str, Any], default), cast(Mapping[str, Any], said))
    return both
