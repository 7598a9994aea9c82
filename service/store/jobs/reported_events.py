"""The events of a supervisor, applied to the row of its job and to the tables of their types."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.job_events import (
    CheckpointRemoved,
    CheckpointWritten,
    GenerationStarted,
    IncidentRevised,
    JobEvent,
    JobHeld,
    JobRelocated,
    MetricsReported,
    MirrorChanged,
    NoteRecorded,
    PhaseProgressed,
    ResultRecorded,
    ScriptResumed,
    StateChanged,
    StragglerRank,
    StragglersChanged,
    encode,
)
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.jobs.incident_rows import write_incident
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.rows.records import EVEN_PACE, HELD, MIRRORED, STEPS_COUNTED, Condition
from regroup.service.store.rows.reported_conditions import Reported, condition_of_node, condition_of_termination
from regroup.service.store.schema.json_values import finite, number, plain
from regroup.service.store.schema.tables import checkpoints, generations, steps
from regroup.workers.contract.messages import StepRow

_SUPERVISOR = "supervisor"


async def apply_event(writer: JobWriter, event: Reported, body: JobEvent) -> None:
    """Apply one event to the job's row and to the tables of its type. Steps are not applied one by one."""
    match body:
        case MetricsReported():
            await _report(writer, event, body)
        case StateChanged():
            await _state(writer, event, body)
        case GenerationStarted():
            await _generation(writer, event, body)
        case ScriptResumed():
            await _resumed(writer, event, body)
        case IncidentRevised():
            await write_incident(writer, body, key=event.key, time_s=event.time_s, actor=_SUPERVISOR)
        case CheckpointWritten():
            await _checkpoint(writer, event, body)
        case CheckpointRemoved():
            await _checkpoint_removed(writer, event, body)
        case PhaseProgressed():
            await _phase(writer, event, body)
        case JobHeld():
            await _held(writer, event, body)
        case StragglersChanged():
            await _stragglers(writer, event, body)
        case MirrorChanged():
            await _mirror(writer, event, body)
        case ResultRecorded():
            data = encode(body)
            await _record(writer, event, data, changes={"result": plain(data)})
        case NoteRecorded():
            await _note(writer, event, body)
        case JobRelocated():
            await _record(writer, event, encode(body))
        case StepRow():
            raise TypeError("steps are added together: see add_steps and fold_steps")


async def record_rejected(writer: JobWriter, event: Reported, error: Exception) -> None:
    """Record an event that cannot be applied."""
    await _record(writer, event, {"event": dict(event.data), "because": repr(error)}, kind="rejected")


async def _report(writer: JobWriter, event: Reported, reported: MetricsReported) -> None:
    """Add the metrics that a script reported to the step's row."""
    metrics = reported.metrics
    row = sa.and_(
        steps.c.job_id == writer.job.id, steps.c.generation == event.generation, steps.c.step == reported.step
    )
    extra = (await writer.connection.execute(sa.select(steps.c.extra).where(row))).scalar()
    if extra is None:  # there is no such step yet
        return
    columns = {name: number(metrics, name) for name in ("loss", "validation_loss") if name in metrics}
    others = {name: value for name, value in plain(metrics).items() if name not in columns}
    await writer.connection.execute(steps.update().where(row).values(**columns, extra={**extra, **others}))
    if columns and event.generation == writer.job.generation:
        await writer.set(**columns)


async def _record(
    writer: JobWriter,
    event: Reported,
    data: Mapping[str, Any],
    kind: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> int:
    return await writer.record(
        kind or event.type,
        data,
        time_s=event.time_s,
        actor=_SUPERVISOR,
        key=event.key,
        generation=event.generation,
        changes=changes,
    )


async def _note(writer: JobWriter, event: Reported, note: NoteRecorded) -> None:
    changes = None
    if note.kind == "condition":
        changes = condition_of_node(writer.job, event, note.data)
    elif note.kind == "terminating":
        changes = condition_of_termination(writer.job, event, note.data)
    await _record(writer, event, encode(note), changes=changes)


async def _state(writer: JobWriter, event: Reported, changed: StateChanged) -> None:
    options: dict[str, Any] = {"now": event.time_s, "actor": _SUPERVISOR}
    target = changed.state
    is_old = target is JobState.STARTING and writer.job.state is not JobState.PLACING
    # The controller may have recorded it already, and a restarted supervisor repeats it.
    if is_old or target is writer.job.state:
        return
    if writer.job.state is JobState.PLACING and target not in (JobState.STARTING, JobState.QUEUED):
        # A supervisor that reports proves the reservations. The controller died before it recorded them.
        await writer.move(JobState.STARTING, Reason.RESERVED, **options)
    await writer.move(target, changed.reason, changed.message, key=event.key, error=changed.error, **options)


async def _generation(writer: JobWriter, event: Reported, started: GenerationStarted) -> None:
    row: dict[str, Any] = plain(encode(started))
    stored = sa.select(generations.c.number).where(
        generations.c.job_id == writer.job.id, generations.c.number == row["number"]
    )
    if (await writer.connection.execute(stored)).first() is not None:
        return
    ranks = row.pop("rank_map", None) or row["ranks"]
    values = {**row, "ranks": ranks}
    await writer.connection.execute(generations.insert().values(job_id=writer.job.id, time_s=event.time_s, **values))
    changes: dict[str, Any] = {}
    if row["number"] > writer.job.generation:
        changes = {"generation": row["number"], "layout": row["layout"], "step": row["start_step"]}
    await _record(writer, event, row, changes=changes)


async def _resumed(writer: JobWriter, event: Reported, resumed: ScriptResumed) -> None:
    """Correct the start step of a generation after its script reported the number of steps in its state."""
    started = generations.update().where(
        generations.c.job_id == writer.job.id, generations.c.number == event.generation
    )
    await writer.connection.execute(started.values(start_step=resumed.step))
    changes: dict[str, Any] = {"step": resumed.step} if event.generation == writer.job.generation else {}
    others = [condition for condition in writer.job.conditions if condition.type != STEPS_COUNTED]
    if resumed.has_step_count and len(others) < len(writer.job.conditions):
        changes["conditions"] = [asdict(each) for each in others]
    elif not resumed.has_step_count and event.generation > 1:
        message = (
            f"the state that the program loaded in generation {event.generation} has no step count: steps that it "
            "repeated count twice"
        )
        uncounted = Condition(STEPS_COUNTED, False, "no_step_count", message, event.time_s)
        changes["conditions"] = [asdict(each) for each in (*others, uncounted)]
    await _record(writer, event, encode(resumed), changes=changes)


async def _checkpoint(writer: JobWriter, event: Reported, written: CheckpointWritten) -> None:
    place = {"job_id": writer.job.id, "step": written.step, "generation": written.generation}
    stored = sa.select(checkpoints.c.step).filter_by(**place)
    if (await writer.connection.execute(stored)).first() is None:
        await writer.connection.execute(
            checkpoints.insert().values(
                **place,
                uri=plain(written.uri),
                size_bytes=written.size_bytes,
                files=written.files,
                duration_s=finite(written.duration_s),
                validation_loss=finite(written.validation_loss),
                created_at=event.time_s,
                pinned=False,
            )
        )
    await _record(writer, event, encode(written))


async def _checkpoint_removed(writer: JobWriter, event: Reported, gone: CheckpointRemoved) -> None:
    removed = checkpoints.update().where(
        checkpoints.c.job_id == writer.job.id,
        checkpoints.c.step == gone.step,
        checkpoints.c.generation == gone.generation,
    )
    await writer.connection.execute(removed.values(removed_at=event.time_s))
    await _record(writer, event, encode(gone))


async def _phase(writer: JobWriter, event: Reported, progressed: PhaseProgressed) -> None:
    """Show the progress of a start on the row. Only a new phase is recorded in the history."""
    data = {**plain(encode(progressed)), "time_s": event.time_s}
    if (writer.job.phase or {}).get("phase") == data["phase"]:
        await writer.set(phase=data)
    else:
        await _record(writer, event, encode(progressed), changes={"phase": data})


async def _held(writer: JobWriter, event: Reported, job_held: JobHeld) -> None:
    """Set the condition of a failed job that keeps its nodes for debugging."""
    until = datetime.fromtimestamp(job_held.until_s, UTC)
    message = f"it failed; its nodes are kept until {until:%Y-%m-%d %H:%M:%S} UTC"
    held = Condition(HELD, True, job_held.reason.value, message, event.time_s)
    others = [condition for condition in writer.job.conditions if condition.type != HELD]
    changes = {"conditions": [asdict(condition) for condition in (*others, held)], "error": plain(job_held.error)}
    await _record(writer, event, encode(job_held), changes=changes)


async def _stragglers(writer: JobWriter, event: Reported, changed: StragglersChanged) -> None:
    """Set the condition of ranks that delay the others, or remove it if there are none."""
    others = [condition for condition in writer.job.conditions if condition.type != EVEN_PACE]
    named = changed.ranks
    if not named and len(others) == len(writer.job.conditions):
        return
    message = "; ".join(_describe_straggler(each) for each in named)
    uneven = [Condition(EVEN_PACE, False, "straggler", message, event.time_s)] if named else []
    conditions = [asdict(each) for each in (*others, *uneven)]
    await _record(writer, event, encode(changed), changes={"conditions": conditions})


def _describe_straggler(each: StragglerRank) -> str:
    where = f"rank {each.rank} on node {each.node}"
    comparison = f"{each.work_s:.3g} s a step, the others {each.usual_s:.3g} s"
    if each.is_crowded:
        return f"{where} has to wait for a processor: it needs {comparison}; check what else runs there"
    return f"{where} works {comparison}"


async def _mirror(writer: JobWriter, event: Reported, mirror: MirrorChanged) -> None:
    """Show the newest mirrored step on the row. It changes too often for the history, which has some of the steps."""
    sets = mirror.sets
    changes: dict[str, Any] = {"mirrored_step": mirror.step}
    others = [condition for condition in writer.job.conditions if condition.type != MIRRORED]
    if sets < 2 or len(others) < len(writer.job.conditions):
        reason = "no_mirror" if sets == 0 else "one_set"
        fewer = [Condition(MIRRORED, False, reason, plain(mirror.why), event.time_s)] if sets < 2 else []
        changes["conditions"] = [asdict(each) for each in (*others, *fewer)]
        await writer.set(**changes)
    else:
        writer.defer(**changes)
