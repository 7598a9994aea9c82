"""The story of a job in few points: states, generations, nodes, incidents, checkpoints, marks and progress. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.domain.states import JobState
from regroup.service.operations.story.incident_account import IncidentAccount, JobCourse, account_for
from regroup.service.operations.story.marks import Mark, marks_of
from regroup.service.operations.story.placements import NodeRanks, NodeRow, node_rows
from regroup.service.operations.story.spans import GenerationSpan, StateSpan, generation_spans, state_spans
from regroup.service.store.rows.records import Checkpoint, Incident
from regroup.service.store.rows.story import StepMark, StoryRecords

MAX_PLACES, MAX_CHECKPOINTS, MAX_GENERATIONS, MAX_INCIDENTS = 6000, 600, 1000, 300
"""Largest numbers of entries: a story stays below 1 MB."""


@dataclass(frozen=True)
class Story:
    """Course of a job over time."""

    from_s: float
    """Time of its submission."""
    until_s: float
    """End of the job, or the present time."""
    is_over: bool
    states: Sequence[StateSpan]
    generations: Sequence[GenerationSpan]
    """The newest ones."""
    nodes: Sequence[NodeRow]
    nodes_since_generation: int
    """First generation that `nodes` covers; 0 without one."""
    incidents: Sequence[IncidentAccount]
    """The newest ones."""
    checkpoints: Sequence[Checkpoint]
    """By step; the newest ones, and all that are in storage and pinned."""
    mirrored_step: int | None
    """Newest step that other nodes hold in memory now."""
    mirrors: Sequence[StepMark]
    """Some steps that other nodes held, with the time from which they held them, in order."""
    marks: Sequence[Mark]
    progress: Sequence[StepMark]
    """Some steps, in the order of their commit."""
    counts: Mapping[str, int]
    """Number of generations, incidents and checkpoints that the job had in all."""


def build_story(records: StoryRecords, placements: Mapping[int, Collection[NodeRanks]], now_s: float) -> Story:
    """Return the story of a job.

    Args:
        records: records of the job in the database.
        placements: generation → its nodes.
        now_s: present time, Unix seconds.
    """
    job = records.job
    states = state_spans(records.states)
    is_over = job.state.is_terminal
    generations = generation_spans(records.generations, _ends(records.incidents), _over_s(job.state, states))
    nodes, since = node_rows(placements, MAX_PLACES)
    names = {node.node_id: node.name for of_generation in placements.values() for node in of_generation}
    course = JobCourse({each.number: each for each in generations}, records.checkpoints, names)
    numbered = list(enumerate(records.incidents, 1))
    last_s = max([each.from_s for each in states] + [each.time_s for each in records.steps[-1:]], default=now_s)
    return Story(
        from_s=job.created_at,
        until_s=max(job.created_at, job.finished_at or last_s) if is_over else max(now_s, last_s),
        is_over=is_over,
        states=states,
        generations=generations[-MAX_GENERATIONS:],
        nodes=nodes,
        nodes_since_generation=since,
        incidents=[account_for(number, each, course, now_s) for number, each in numbered[-MAX_INCIDENTS:]],
        checkpoints=_shown(records.checkpoints),
        mirrored_step=job.mirrored_step,
        mirrors=records.mirrors,
        marks=marks_of(records.others),
        progress=records.steps,
        counts={
            "generations": len(generations),
            "incidents": len(records.incidents),
            "checkpoints": len(records.checkpoints),
        },
    )


def _shown(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    newest = set(range(max(0, len(checkpoints) - MAX_CHECKPOINTS), len(checkpoints)))
    return [each for index, each in enumerate(checkpoints) if index in newest or (each.pinned and not each.removed_at)]


def _ends(incidents: Sequence[Incident]) -> dict[int, float]:
    """Return generation → time at which an incident ended it."""
    found: dict[int, float] = {}
    for each in incidents:
        generation, times = each.data.get("generation"), each.data.get("times") or {}
        ended_s = times.get("fault_s") or times.get("seen_s")
        if isinstance(generation, int) and isinstance(ended_s, int | float):
            found[generation] = float(ended_s)
    return found


def _over_s(state: JobState, states: Sequence[StateSpan]) -> float | None:
    """Return the time at which the job released its devices; None if it has some."""
    return None if state.has_allocations or not states else states[-1].from_s
