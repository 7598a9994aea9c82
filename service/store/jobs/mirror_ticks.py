"""Mirrored sets of a job over its life, in a bounded number of ticks.

A job may mirror every second. When the list is full, every second tick is removed, and later sets are recorded at that
distance: the ticks remain spread over the whole life.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.jobs.job_writer import padded
from regroup.service.store.rows.story import StepMark
from regroup.service.store.schema.json_values import CorruptJson
from regroup.service.store.schema.mirror_tables import mirrors

MAX_TICKS = 300
"""Number of ticks that a job has at most."""
_SOME = mirrors.c.job_id.in_(sa.bindparam("of_jobs", expanding=True))
_TIMES = sa.select(mirrors.c.job_id, mirrors.c.last_s, mirrors.c.interval_s).where(_SOME)
_TICKS = sa.select(mirrors.c.job_id, mirrors.c.ticks, mirrors.c.interval_s).where(_SOME)
_CHANGED = mirrors.update().where(mirrors.c.job_id == sa.bindparam("of_job"))
_LEAST_INTERVAL_S = 0.001


@dataclass(frozen=True)
class MirrorTicks:
    """Some mirrored sets of a job, in order."""

    ticks: Sequence[StepMark] = ()
    interval_s: float = 0.0
    """Least time between two ticks."""


def add_tick(found: MirrorTicks, tick: StepMark, most: int = MAX_TICKS) -> MirrorTicks:
    """Return the ticks with a new one, thinned out if they are more than `most`."""
    ticks = [*found.ticks, tick]
    if len(ticks) <= most:
        return MirrorTicks(ticks, found.interval_s)
    interval_s = max(2 * found.interval_s, 2 * (ticks[-1].time_s - ticks[0].time_s) / most, _LEAST_INTERVAL_S)
    kept = ticks[:1]
    for each in ticks[1:]:
        if each.time_s - kept[-1].time_s >= interval_s:
            kept.append(each)
    return MirrorTicks(kept, interval_s)


async def record_sets(connection: AsyncConnection, sets: Mapping[str, Sequence[StepMark]]) -> None:
    """Record the sets that the nodes of each job held one after the other. The rows of the jobs must be locked.

    A set that is too close to the last recorded one is left out.
    """
    if not sets:
        return
    times = {row.job_id: row for row in await connection.execute(_TIMES, {"of_jobs": padded(sets)})}
    due = {
        job_id: marks
        for job_id, marks in sets.items()
        if (last := times.get(job_id)) is None or any(_is_apart(last.last_s, last.interval_s, each) for each in marks)
    }
    if not due:
        return
    before = await _ticks_of_jobs(connection, due)
    changed, added = list[dict[str, Any]](), list[dict[str, Any]]()
    for job_id, marks in due.items():
        old, old_s = before.get(job_id, MirrorTicks()), times[job_id].last_s if job_id in times else None
        new, last_s = _add_sets(old, old_s, marks)
        if last_s == old_s:
            continue
        ticks = [[each.time_s, each.generation, each.step] for each in new.ticks]
        values = {"interval_s": new.interval_s, "last_s": last_s, "ticks": ticks}
        if old_s is None:
            added.append({"job_id": job_id, **values})
        else:
            changed.append({"of_job": job_id, **values})
    if added:
        await connection.execute(mirrors.insert(), added)
    if changed:
        await connection.execute(_CHANGED, changed)


def _add_sets(found: MirrorTicks, last_s: float | None, marks: Sequence[StepMark]) -> tuple[MirrorTicks, float | None]:
    """Return the ticks with those of the sets that are apart from each other, and the time of the last recorded set."""
    for tick in marks:
        is_same = bool(found.ticks) and (found.ticks[-1].generation, found.ticks[-1].step) == (
            tick.generation, tick.step,
        )  # fmt: skip
        if not is_same and (last_s is None or _is_apart(last_s, found.interval_s, tick)):
            found, last_s = add_tick(found, tick), tick.time_s
    return found, last_s


def _is_apart(last_s: float, interval_s: float, tick: StepMark) -> bool:
    return tick.time_s > last_s and tick.time_s >= last_s + interval_s


async def ticks_of(connection: AsyncConnection, job_id: str) -> MirrorTicks:
    """Return the recorded sets of a job."""
    return (await _ticks_of_jobs(connection, [job_id])).get(job_id, MirrorTicks())


async def _ticks_of_jobs(connection: AsyncConnection, job_ids: Collection[str]) -> dict[str, MirrorTicks]:
    found = dict[str, MirrorTicks]()
    for row in await connection.execute(_TICKS, {"of_jobs": padded(job_ids)}):
        if not isinstance(row.ticks, CorruptJson):
            ticks = [StepMark(int(generation), int(step), float(time_s)) for time_s, generation, step in row.ticks]
            found[row.job_id] = MirrorTicks(ticks, row.interval_s)
    return found
