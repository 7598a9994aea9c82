"""Tools that read the metrics of jobs: curves, a comparison of two jobs, slow ranks, stacks."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from regroup.api.client.connection.errors import ApiError
from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Job, Project, Rank, Step
from regroup.api.mcp.calls.tool import reads
from regroup.api.schemas import history
from regroup.api.schemas.comparison.spec_differences import FieldDifference
from regroup.api.schemas.stacks import RankStack
from regroup.api.schemas.wire import Wire

Points = Annotated[int, Field(ge=1, le=100, description="Number of steps, at equal distances")]
_MAX_PARALLEL = 8
_MAX_EVENTS = 1000


class Point(Wire):
    """The metrics of one committed step."""

    step: int
    generation: int
    time_s: float
    duration_s: float | None
    loss: float | None
    validation_loss: float | None
    tokens: int | None
    learning_rate: float | None
    grad_norm: float | None
    extra: dict[str, float | None]


class Curve(Wire):
    """Metrics of a job over its steps."""

    job: str
    last_step: int
    points: list[Point]


class CommonPoint(Wire):
    """The metrics of both jobs at one step."""

    step: int
    first_loss: float | None
    second_loss: float | None
    first_duration_s: float | None
    second_duration_s: float | None


class Comparison(Wire):
    """Two jobs side by side."""

    differences: list[FieldDifference]
    """Fields of the specs that differ."""
    totals: dict[str, tuple[Any, Any]]
    """Values of both jobs: state, step, loss, goodput and others."""
    points: list[CommonPoint]


class SlowRank(Wire):
    """A rank that works longer than others."""

    rank: int
    node: str
    work_s: float | None
    """Time of its own work per step."""
    usual_s: float | None
    """Usual time of the others."""
    is_crowded: bool
    """True if other processes use its cores."""


class SlowRanks(Wire):
    """The ranks that slow a job down now, and the ranks that are behind."""

    slow: list[SlowRank]
    reported_at: float | None
    """Time of the last report of slow ranks, Unix seconds; null if there was none."""
    behind: dict[str, tuple[int, str]]
    """Ranks at a lower step than the others: step and phase."""
    newest_step: int | None
    note: str


class Stacks(Wire):
    """The stacks of some ranks."""

    ranks: list[RankStack]
    total: int


@reads("Read the metrics of a job")
async def read_metrics(
    caller: Caller,
    job: Job,
    after: Step = 0,
    until: Annotated[int | None, Field(ge=1, lt=2**53, description="Last step; null for the newest")] = None,
    points: Points = 20,
    project: Project = "default",
) -> Curve:
    """Read loss, step time and other metrics at equal distances between two steps."""
    found = await caller.client.get(job, project=project)
    end = found.step if until is None else min(until, found.step)
    rows = await _sample(caller, found.id, after, end, points)
    return Curve(job=found.id, last_step=found.step, points=[Point.model_validate(each) for each in rows])


@reads("Compare two jobs")
async def compare_jobs(
    caller: Caller, first: Job, second: Job, points: Points = 10, project: Project = "default"
) -> Comparison:
    """Compare two jobs: the fields of their specs that differ, their results, and their curves at common steps."""
    one, two = await asyncio.gather(*(caller.client.get(each, project=project) for each in (first, second)))
    end = min(one.step, two.step)
    rows = await asyncio.gather(*(_sample(caller, each.id, 0, end, points) for each in (one, two)))
    by_step = [{each.step: each for each in found} for found in rows]
    names = ("state", "reason", "step", "loss", "validation_loss", "tokens_per_s", "mfu", "goodput", "generation")
    specs = await caller.client.diff(one.id, two.id)
    return Comparison(
        differences=specs.differences,
        totals={name: (getattr(one, name), getattr(two, name)) for name in names},
        points=[
            CommonPoint(
                step=step, first_loss=each.loss, second_loss=by_step[1][step].loss, first_duration_s=each.duration_s,
                second_duration_s=by_step[1][step].duration_s,
            )
            for step, each in by_step[0].items()
            if step in by_step[1]
        ],
    )  # fmt: skip


@reads("Find slow ranks")
async def find_slow_ranks(caller: Caller, job: Job, project: Project = "default") -> SlowRanks:
    """Find the ranks that slow a job down: those that work longer than others, and those behind the newest step."""
    found = await caller.client.get(job, project=project)
    page = await caller.client.event_page(found.id, after=max(0, found.version - _MAX_EVENTS), size=_MAX_EVENTS)
    report = next((each for each in reversed(page.items) if each.type == "stragglers"), None)
    if report is not None and report.generation != found.generation:
        report = None  # the ranks of the report have ended
    steps = {rank: place[0] for rank, place in found.rank_phases.items()}
    newest = max(steps.values(), default=None)
    behind = {rank: place for rank, place in found.rank_phases.items() if newest is not None and place[0] < newest}
    slow = [] if report is None else [_slow_rank(each) for each in report.data.get("ranks", ())]
    note = "Stacks and logs of these ranks show more; cordon a node that stays slow." if slow or behind else (
        "No rank is slower than the others now." if found.rank_phases else "No rank runs now."
    )  # fmt: skip
    return SlowRanks(
        slow=slow, reported_at=None if report is None else report.time_s, behind=behind, newest_step=newest, note=note
    )


@reads("Get stacks of ranks")
async def get_stacks(
    caller: Caller,
    job: Job,
    ranks: Annotated[tuple[Rank, ...], Field(max_length=16, description="Ranks; the first four if empty")] = (),
    project: Project = "default",
) -> Stacks:
    """Get the current stacks of all threads of some ranks, even if they hang."""
    found = await caller.client.stacks(job, project=project)
    chosen = [each for each in found if each.rank in ranks] if ranks else found[:4]
    return Stacks(ranks=chosen, total=len(found))


async def _sample(caller: Caller, job: str, after: int, end: int, points: int) -> list[history.Step]:
    """Return committed steps at equal distances above `after`, up to `end`."""
    count = min(points, end - after)
    if count <= 0:
        return []
    requested = sorted({after + round((number + 1) * (end - after) / count) for number in range(count)})
    slots = asyncio.Semaphore(_MAX_PARALLEL)

    async def read(step: int) -> list[history.Step]:
        async with slots:
            try:
                return await caller.client.step_page(job, after=step - 1, limit=1)
            except ApiError as error:
                if error.problem.code != "not_found":
                    raise
                return []

    rows = {row.step: row for found in await asyncio.gather(*(read(step) for step in requested)) for row in found}
    return [rows[step] for step in sorted(rows) if step <= end]


def _slow_rank(data: dict[str, Any]) -> SlowRank:
    return SlowRank(
        rank=int(data["rank"]), node=str(data.get("node", "")), work_s=data.get("work_s"), usual_s=data.get("usual_s"),
        is_crowded=bool(data.get("is_crowded")),
    )  # fmt: skip
