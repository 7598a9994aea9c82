"""Takes in what a supervisor reports: each event once, by its key, in the order of its sequence numbers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.errors import IllegalTransitionError
from regroup.service.domain.states import JobState, Reason
from regroup.service.store.job_writer import JobWriter
from regroup.service.store.json_values import number, plain
from regroup.service.store.records import EVEN_PACE, HELD, MIRRORED, NODE_WELL, Condition, JobRow, Reported
from regroup.service.store.tables import checkpoints, events, generations, incidents, steps

_SMOOTHING = 0.1  # weight of the newest step in the moving averages
_SUPERVISOR = "supervisor"
_COUNTS = ("tokens", "samples", "samples_hash")
_FACTS = ("mfu", "exposed", "peak_bytes", "idle")
"""Of what training code reports of a step: shown on the job, too."""
"""Whole numbers of a step row; None where training code does not count them."""


async def ingest(writer: JobWriter, boot_id: str, reported: Sequence[Reported], status: Mapping[str, Any]) -> None:
    """Apply what is new in `reported`, then remember how far this life of the supervisor was heard."""
    acked = writer.job.acked_seq if writer.job.supervisor_boot == boot_id else 0
    fresh = sorted((event for event in reported if event.seq > acked), key=lambda event: event.seq)
    known = await _known_keys(writer, [event.key for event in fresh])
    await _add_steps(writer, [event for event in fresh if event.type == "step" and _is_step(event.data)])
    for event in fresh:
        if event.key in known:
            continue
        known.add(event.key)
        try:
            await _HANDLERS.get(event.type, _note)(writer, event)
        except (ValueError, KeyError, TypeError, IllegalTransitionError) as error:
            # Refusing the batch would have it resent for ever; the history shows what was not followed.
            await _record(writer, event, {"event": dict(event.data), "because": repr(error)}, kind="rejected")
    changes: dict[str, Any] = {}
    goodput = number(status, "goodput")
    if goodput is not None and goodput != writer.job.goodput:
        changes["goodput"] = goodput
    phases = plain(status.get("ranks") or {}) if writer.job.state.holds_devices else {}
    if phases != writer.job.rank_phases:
        changes["rank_phases"] = phases
    newest = max((event.seq for event in fresh), default=acked)
    if (boot_id, newest) != (writer.job.supervisor_boot, writer.job.acked_seq):
        changes |= {"supervisor_boot": boot_id, "acked_seq": newest}
    if changes:
        await writer.set(**changes)


async def _known_keys(writer: JobWriter, keys: Sequence[str]) -> set[str]:
    query = sa.select(events.c.key).where(events.c.job_id == writer.job.id, events.c.key.in_(keys))
    return set((await writer.connection.execute(query)).scalars()) if keys else set()


async def _add_steps(writer: JobWriter, rows: Sequence[Reported]) -> None:
    """Insert the rows that are new, numbered on from the last."""
    if not rows:
        return
    numbers = [int(row.data["step"]) for row in rows]
    stored = sa.select(steps.c.generation, steps.c.step).where(
        steps.c.job_id == writer.job.id,
        steps.c.generation.in_({row.generation for row in rows}),
        steps.c.step.between(min(numbers), max(numbers)),
    )
    seen = {(int(generation), int(step)) for generation, step in await writer.connection.execute(stored)}
    values: list[dict[str, Any]] = []
    for row in rows:
        place = (row.generation, int(row.data["step"]))
        if place not in seen:
            seen.add(place)
            values.append(_step_values(writer.job.id, writer.job.step_rows + len(values) + 1, row))
    if values:
        await writer.connection.execute(steps.insert(), values)
        await writer.set(step_rows=writer.job.step_rows + len(values))


def _step_values(job_id: str, place: int, row: Reported) -> dict[str, Any]:
    floats = ("duration_s", "loss", "learning_rate", "grad_norm", "validation_loss", "stall_s")
    return {
        "job_id": job_id,
        "number": place,
        "generation": row.generation,
        "step": int(row.data["step"]),
        "time_s": number(row.data, "time_s") or row.time_s,
        **{name: number(row.data, name) for name in floats},
        **{name: row.data[name] for name in _COUNTS},
        "extra": plain(row.data.get("extra") or {}),
    }


def _is_step(data: Mapping[str, Any]) -> bool:
    counts = (data.get(name, "") for name in _COUNTS)
    return isinstance(data.get("step"), int) and all(count is None or isinstance(count, int) for count in counts)


async def _step(writer: JobWriter, event: Reported) -> None:
    """Show a committed step on the job's row, unless a late row of an older generation reports it."""
    job, data = writer.job, event.data
    if not _is_step(data):
        raise ValueError("a step row needs a whole number in step, and in tokens, samples and samples_hash or null")
    step = int(data["step"])
    if event.generation != job.generation or step <= job.step:
        return
    changes: dict[str, Any] = {"step": step, "stall_s": job.stall_s + (number(data, "stall_s") or 0.0)}
    if data.get("loss") is not None:  # a script's may be reported later
        changes["loss"] = number(data, "loss")
    validation_loss, duration_s = number(data, "validation_loss"), number(data, "duration_s")
    if validation_loss is not None:
        changes["validation_loss"] = validation_loss
    if duration_s:
        changes["step_duration_s"] = _smooth(job.step_duration_s, duration_s)
        if data["tokens"] is not None:
            changes["tokens_per_s"] = _smooth(job.tokens_per_s, data["tokens"] / duration_s)
    extra = data.get("extra") or {}
    changes |= {name: number(extra, name) for name in _FACTS if name in extra}
    await writer.set(**changes)


async def _report(writer: JobWriter, event: Reported) -> None:
    """Add to a step's row what its script reported of it."""
    step, told = int(event.data["step"]), dict(event.data["metrics"])
    row = sa.and_(steps.c.job_id == writer.job.id, steps.c.generation == event.generation, steps.c.step == step)
    extra = (await writer.connection.execute(sa.select(steps.c.extra).where(row))).scalar()
    if extra is None:  # nothing was trained yet
        return
    columns = {name: number(told, name) for name in ("loss", "validation_loss") if name in told}
    others = {name: value for name, value in plain(told).items() if name not in columns}
    await writer.connection.execute(steps.update().where(row).values(**columns, extra={**extra, **others}))
    if columns and event.generation == writer.job.generation:
        await writer.set(**columns)


def _smooth(average: float | None, value: float) -> float:
    return value if average is None else average + _SMOOTHING * (value - average)


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


async def _note(writer: JobWriter, event: Reported) -> None:
    is_condition = event.type == "note" and event.data.get("kind") == "condition"
    await _record(writer, event, event.data, changes=_of_a_node(writer.job, event) if is_condition else None)


def _of_a_node(job: JobRow, event: Reported) -> dict[str, Any]:
    """Something goes short on a node, or no longer: a condition, beside the others."""
    what, place, message = event.data["what"], f"node {event.data['node']}: ", event.data["message"]
    others = [
        condition
        for condition in job.conditions
        if not (condition.type == NODE_WELL and condition.reason == what and condition.message.startswith(place))
    ]
    unwell = [Condition(NODE_WELL, False, what, f"{place}{message}", event.time_s)] if message else []
    return {"conditions": [asdict(each) for each in (*others, *unwell)]}


async def _state(writer: JobWriter, event: Reported) -> None:
    data = event.data
    options: dict[str, Any] = {"now": event.time_s, "actor": _SUPERVISOR}
    target, reason = JobState(data["state"]), Reason(data["reason"])
    is_old = target is JobState.STARTING and writer.job.state is not JobState.PLACING
    if is_old or target is writer.job.state:  # the controller said so before; a supervisor that restarts says it again
        return
    if writer.job.state is JobState.PLACING and target not in (JobState.STARTING, JobState.QUEUED):
        # A supervisor that speaks proves the reservations; the controller died before it could write so.
        await writer.move(JobState.STARTING, Reason.RESERVED, **options)
    await writer.move(target, reason, str(data.get("message", "")), key=event.key, error=data.get("error"), **options)


async def _generation(writer: JobWriter, event: Reported) -> None:
    data = plain(event.data)
    row: dict[str, Any] = {
        "number": int(data["number"]),
        "layout": data["layout"],
        "world_size": int(data["world_size"]),
        "ranks": data["ranks"],
        "start_step": int(data["start_step"]),
        "restore": data.get("restore") or {},
        "cause": str(data.get("cause") or ""),
    }
    stored = sa.select(generations.c.number).where(
        generations.c.job_id == writer.job.id, generations.c.number == row["number"]
    )
    if (await writer.connection.execute(stored)).first() is not None:
        return
    await writer.connection.execute(generations.insert().values(job_id=writer.job.id, time_s=event.time_s, **row))
    changes: dict[str, Any] = {}
    if row["number"] > writer.job.generation:
        changes = {"generation": row["number"], "layout": row["layout"], "step": row["start_step"]}
    await _record(writer, event, data, changes=changes)


async def _resumed(writer: JobWriter, event: Reported) -> None:
    """A script has said how many steps its state has: its generation started there, not where it was thought to."""
    step = int(event.data["step"])
    started = generations.update().where(
        generations.c.job_id == writer.job.id, generations.c.number == event.generation
    )
    await writer.connection.execute(started.values(start_step=step))
    changes = {"step": step} if event.generation == writer.job.generation else None
    await _record(writer, event, event.data, changes=changes)


async def _incident(writer: JobWriter, event: Reported) -> None:
    data = plain(event.data)
    place = await _record(writer, event, data)
    table, job_id, incident_id = incidents, writer.job.id, str(data["id"])
    known = sa.and_(table.c.job_id == job_id, table.c.id == incident_id)
    filled = table.update().where(known).values(cause=str(data["cause"]), data=data)
    if (await writer.connection.execute(filled)).rowcount == 0:
        first = {"id": incident_id, "number": place, "cause": str(data["cause"]), "time_s": event.time_s, "data": data}
        await writer.connection.execute(table.insert().values(job_id=job_id, **first))


async def _checkpoint(writer: JobWriter, event: Reported) -> None:
    data = plain(event.data)
    place = {"job_id": writer.job.id, "step": int(data["step"]), "generation": int(data["generation"])}
    stored = sa.select(checkpoints.c.step).filter_by(**place)
    if (await writer.connection.execute(stored)).first() is None:
        floats = ("duration_s", "stall_s", "validation_loss")
        await writer.connection.execute(
            checkpoints.insert().values(
                **place,
                uri=str(data["uri"]),
                size_bytes=int(data.get("size_bytes") or 0),
                files=int(data.get("files") or 0),
                **{name: number(data, name) for name in floats},
                created_at=event.time_s,
                pinned=False,
            )
        )
    await _record(writer, event, data)


async def _checkpoint_removed(writer: JobWriter, event: Reported) -> None:
    removed = checkpoints.update().where(
        checkpoints.c.job_id == writer.job.id,
        checkpoints.c.step == int(event.data["step"]),
        checkpoints.c.generation == int(event.data["generation"]),
    )
    await writer.connection.execute(removed.values(removed_at=event.time_s))
    await _record(writer, event, event.data)


async def _phase(writer: JobWriter, event: Reported) -> None:
    """Progress of starting: on the row always, in the history only when the phase is another one."""
    data = {**plain(event.data), "time_s": event.time_s}
    if (writer.job.phase or {}).get("phase") == data.get("phase"):
        await writer.set(phase=data)
    else:
        await _record(writer, event, event.data, changes={"phase": data})


async def _held(writer: JobWriter, event: Reported) -> None:
    """A failed job keeps its nodes for a while: a condition, beside the others."""
    until = datetime.fromtimestamp(float(event.data["until_s"]), UTC)
    message = f"it failed; its nodes are kept until {until:%Y-%m-%d %H:%M:%S} UTC"
    held = Condition(HELD, True, str(event.data["reason"]), message, event.time_s)
    others = [condition for condition in writer.job.conditions if condition.type != HELD]
    changes = {"conditions": [asdict(condition) for condition in (*others, held)], "error": plain(event.data["error"])}
    await _record(writer, event, event.data, changes=changes)


async def _stragglers(writer: JobWriter, event: Reported) -> None:
    """Ranks that keep the others waiting, or that nobody does any more: a condition, beside the others."""
    others = [condition for condition in writer.job.conditions if condition.type != EVEN_PACE]
    named = event.data["ranks"]
    if not named and len(others) == len(writer.job.conditions):
        return
    told = "; ".join(_slow_as_text(each) for each in named)
    uneven = [Condition(EVEN_PACE, False, "straggler", told, event.time_s)] if named else []
    await _record(writer, event, event.data, changes={"conditions": [asdict(each) for each in (*others, *uneven)]})


def _slow_as_text(each: Mapping[str, Any]) -> str:
    where = f"rank {each['rank']} on node {each['node']}"
    beside = f"{each['work_s']:.3g} s a step, the others {each['usual_s']:.3g} s"
    if each.get("is_crowded"):  # not said by supervisors of an older release
        return f"{where} has to wait for a processor: it takes {beside}; look at what else runs there"
    return f"{where} works {beside}"


async def _mirror(writer: JobWriter, event: Reported) -> None:
    """Another set is held by other nodes, or none any more: on the row alone, it is too often for the history."""
    step, sets = event.data["step"], event.data.get("sets", 2)
    changes: dict[str, Any] = {"mirrored_step": None if step is None else int(step)}
    others = [condition for condition in writer.job.conditions if condition.type != MIRRORED]
    if sets < 2 or len(others) < len(writer.job.conditions):
        reason = "no_mirror" if sets == 0 else "one_set"
        fewer = [Condition(MIRRORED, False, reason, str(event.data["why"]), event.time_s)] if sets < 2 else []
        changes["conditions"] = [asdict(each) for each in (*others, *fewer)]
    await writer.set(**changes)


async def _result(writer: JobWriter, event: Reported) -> None:
    await _record(writer, event, event.data, changes={"result": plain(event.data)})


_HANDLERS: Mapping[str, Callable[[JobWriter, Reported], Awaitable[None]]] = {
    "step": _step,
    "report": _report,
    "state": _state,
    "generation": _generation,
    "resumed": _resumed,
    "incident": _incident,
    "checkpoint": _checkpoint,
    "checkpoint_removed": _checkpoint_removed,
    "phase": _phase,
    "held": _held,
    "stragglers": _stragglers,
    "mirror": _mirror,
    "result": _result,
}
