"""Use cases of jobs. This module knows no HTTP: routes parse requests and format answers.

A reference to a job is its id or its name. A name means the live job of that name in the project, else the newest one.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.cluster_state.allocations import JobAllocations
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.cluster_state.queue_positions import QueuePositions
from regroup.service.domain.author import Author
from regroup.service.domain.rank_reports import decode_rank_reports
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.job_plan import JobPlan, PredictionComparison, compare_generations, get_job_plan
from regroup.service.operations.placement_explanation import PlacementExplanation, explain_placement
from regroup.service.operations.ranks import RankViews, view_ranks
from regroup.service.operations.streams.followers import Entry, Followers
from regroup.service.operations.why import Why, explain
from regroup.service.planner.host_memory import host_memory_from
from regroup.service.store.jobs.jobs import unknown_job
from regroup.service.store.rows.curves import Curves, CurveSelection, SampledStep
from regroup.service.store.rows.records import (
    EVEN_PACE,
    Checkpoint,
    Event,
    Generation,
    Incident,
    JobFilter,
    JobRow,
    Ledger,
    Page,
    Step,
)
from regroup.service.store.store import Store

_PREDICTED: Mapping[str, str] = {"step_s": "step_s", "peak_bytes": "peak_bytes", "pipeline_idle": "bubble"}
"""Metric → name of its prediction."""
_RECENT_STEPS = 100
_RETAINED_ACCOUNTS = 200
_STRAGGLER_EVENTS = 1000
"""Number of the newest events in which the report of slow ranks is looked up."""


@dataclass(frozen=True)
class PredictedValue:
    """Predicted value of a metric in a generation."""

    metric: str
    generation: int
    start_step: int
    """Number of committed steps at the start of the generation."""
    value: float


@dataclass(frozen=True)
class JobDetail:
    """A job with the records that belong to it."""

    job: JobRow
    incidents: list[Incident]
    generation: Generation | None
    """The newest generation."""
    comparison: PredictionComparison | None = None
    """Predicted and measured metrics of that generation; None without a prediction."""


class Jobs:
    """Use cases of jobs.

    Args:
        clock: Unix seconds.
        positions: positions of jobs in the queue.
        followers: reader for all that follow jobs.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], positions: QueuePositions, followers: Followers
    ) -> None:
        self._store, self._clock, self._positions, self._followers = store, clock, positions, followers
        self._accounts: dict[str, JobAccount] = {}
        """Accounts of the jobs that were explained last, the oldest first."""
        self._accounting = asyncio.Lock()

    async def get(self, reference: str, project: str, sender: Sender) -> JobRow:
        """Return the job with this id or name.

        Raises:
            NotFoundError: there is no such job, or the sender does not see its project.
        """
        found = await self._store.find_job(reference, project)
        if not sender.sees(found.project):
            raise unknown_job(reference, project)
        return found

    async def get_many(self, references: Sequence[str], project: str, sender: Sender) -> list[JobRow]:
        """Return the jobs with these ids or names, in this order. All ids are found with one query.

        Raises:
            NotFoundError: one of them does not exist, or the sender does not see its project.
        """
        by_id = {row.id: row for row in await self._store.jobs_with_ids(references) if sender.sees(row.project)}
        return [by_id.get(each) or await self.get(each, project, sender) for each in references]

    async def detail(self, job: JobRow) -> JobDetail:
        """Return the job with its incidents and its newest generation."""
        if job.version == 1:  # the submission is the only event so far
            return JobDetail(job, [], None)
        newest, incidents = await self._store.newest_generation_and_incidents(job.id)
        comparisons = await compare_generations(self._store, job.id, [newest] if newest else [])
        return JobDetail(job, incidents, newest, comparisons[0] if comparisons else None)

    async def ranks(self, job: JobRow) -> RankViews:
        """Return the ranks of the newest generation, and what they do."""
        newest, _ = await self._store.newest_generation_and_incidents(job.id)
        if newest is None:
            return RankViews(0, (), None, None)
        reported = dict[int, bool]()
        if any(each.type == EVEN_PACE and not each.status for each in job.conditions):
            events = await self._store.events(job.id, max(0, job.version - _STRAGGLER_EVENTS), _STRAGGLER_EVENTS)
            changed = next((each for each in reversed(events) if each.type == "stragglers"), None)
            if changed is not None and changed.generation == newest.number:
                reported = {int(each["rank"]): bool(each.get("is_crowded")) for each in changed.data["ranks"]}
        return view_ranks(
            newest.number, newest.ranks, decode_rank_reports(job.rank_phases), reported, job.step_duration_s
        )

    async def plan(self, job: JobRow) -> JobPlan:
        """Return the plan of a job, and its result."""
        return await get_job_plan(self._store, job)

    async def page(self, selection: JobFilter, after: str | None, limit: int) -> Page:
        """Return a page of jobs, newest first."""
        return await self._store.page(selection, after, limit)

    async def cancel(self, job: JobRow, *, author: Author) -> JobRow:
        """End a queued job at once, or request that any other job stops. Raises the errors of `Store.cancel`."""
        return await self._store.cancel(job.id, now=self._clock(), author=author)

    async def release(self, job: JobRow, *, author: Author) -> JobRow:
        """Release the nodes of a failed job that is held. Raises the errors of `Store.release`."""
        return await self._store.release(job.id, now=self._clock(), author=author)

    async def events(self, job: JobRow, after: int, limit: int) -> list[Event]:
        """Return the events with numbers above `after`."""
        return await self._store.events(job.id, after, limit)

    def follow_events(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Event] | None]:
        """Yield events with numbers above `after` until the job has ended; None while there is no new event.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        return self._followers.follow_events(job, after)

    async def steps(self, job: JobRow, after: int, limit: int) -> list[Step]:
        """Return the committed steps above step `after`, without those that a later generation repeated."""
        return await self._store.committed_steps(job.id, after, limit)

    def follow_steps(self, job: JobRow, after: int) -> AsyncGenerator[Entry[Step] | None]:
        """Yield step rows with numbers above `after` until the job has ended; None while there is no new row.

        A row replaces the rows of its step and of later steps in older generations.

        Raises:
            FollowerDroppedError: the caller was too slow.
        """
        return self._followers.follow_steps(job, after)

    async def curves(self, job: JobRow, selection: CurveSelection) -> tuple[Curves, Sequence[PredictedValue]]:
        """Return curves of metrics, and what the planner predicted for them."""
        predictions = await self._store.predictions.of_job(job.id)
        formed = await self._store.generations(job.id) if predictions else []
        found = [
            PredictedValue(metric, each.number, each.start_step, float(value))
            for each in formed
            for metric, field in _PREDICTED.items()
            if metric in selection.metrics
            and isinstance(value := predictions.get(each.number, {}).get(field), int | float)
        ]
        return await self._store.curves.read(job.id, selection), found

    async def sample_curves(
        self, jobs: Sequence[JobRow], metrics: Sequence[str], points: int
    ) -> Mapping[str, Sequence[SampledStep]]:
        """Return committed steps of each job at equal distances, by id."""
        return await self._store.curves.sample([job.id for job in jobs], metrics, points)

    async def incidents(self, job: JobRow) -> list[Incident]:
        """Return the incidents, oldest first."""
        return await self._store.incidents(job.id)

    async def generations(self, job: JobRow) -> list[Generation]:
        """Return the generations, oldest first."""
        return await self._store.generations(job.id)

    async def checkpoints(self, job: JobRow, removed: bool) -> list[Checkpoint]:
        """Return the checkpoints by step. `removed` includes those that are no longer in storage."""
        return await self._store.checkpoints(job.id, removed)

    async def pin(self, job: JobRow, step: int, pinned: bool, *, author: Author) -> Checkpoint:
        """Exclude a checkpoint from retention, or include it again; raises NotFoundError."""
        return await self._store.pin(job.id, step, pinned, now=self._clock(), author=author)

    async def ledger(self, job: JobRow) -> Ledger:
        """Return the ledger: the proof that every committed step saw each of its samples exactly once."""
        return await self._store.ledger(job.id)

    async def why(self, job: JobRow) -> Why:
        """Explain why the job waits, failed or is slow, with advice."""
        recent = await self._store.committed_steps(job.id, max(0, job.step - _RECENT_STEPS))
        now, ahead = self._clock(), await self._positions.jobs_ahead(job)
        account = await self._account(job)
        incidents, choice = await self._store.incidents(job.id), await self._choice(job)
        account.restore_incidents(incidents)
        predicted = (await self._store.predictions.newest([job.id])).get(job.id)
        memory = host_memory_from({} if predicted is None else predicted.data)
        return explain(job, incidents, recent, ahead, account.seconds(now), now, choice, account.steps_lost, memory)

    async def _account(self, job: JobRow) -> JobAccount:
        """Return the job's account. The last ones are retained, so that a repetition reads only new events."""
        async with self._accounting:
            account = self._accounts[job.id] = self._accounts.pop(job.id, None) or JobAccount(job)
            if len(self._accounts) > _RETAINED_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            await account.catch_up(self._store, job)
            return account

    async def _choice(self, job: JobRow) -> PlacementExplanation | None:
        """Return the placement decision of the job's current nodes; None if it has no nodes."""
        rows = await self._store.live_allocations(job.id)
        with contextlib.suppress(KeyError, TypeError, ValueError, StopIteration):  # a damaged row
            choice = JobAllocations(rows).assignment.choice if rows else None
            if choice is None:
                return None
            predictions = await self._store.predictions.of_job(job.id)
            probe = predictions.get(job.generation, {}).get("probe_job_id")
            return explain_placement(choice, job.parsed_spec(), probe)
        return None
