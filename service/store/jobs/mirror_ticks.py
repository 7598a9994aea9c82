"""Mirrored sets of a job over its life, in a bounded number of ticks.

A job may mirror every second. When the list is full, every second tick is removed, and later sets are recorded at that
distance: the ticks remain spread over the whole life.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.store.rows.story import StepMark
from regroup.service.store.schema.json_values import CorruptJson
from regroup.service.store.schema.mirror_tables import mirrors

MAX_TICKS = 300
"""Number of ticks that a job has at most."""
_MINE = mirrors.c.job_id == sa.bindparam("of_job")
_TIMES = sa.select(mirrors.c.last_s, mirrors.c.interval_s).where(_MINE)
_TICKS = sa.select(mirrors.c.ticks, mirrors.c.interval_s).where(_MINE)
_CHANGED = mirrors.update().where(_MINE)
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


async def record_sets(connection: AsyncConnection, job_id: str, sets: Sequence[StepMark]) -> None:
    """Record the sets that the nodes held one after the other. The job's row must be locked.

    A set that is too close to the last recorded one is left out.
    """
    last = (await connection.execute(_TIMES, {"of_job": job_id})).one_or_none()
    if last is not None and not any(_is_apart(last.last_s, last.interval_s, each) for each in sets):
        return
    added, last_s = await ticks_of(connection, job_id), None if last is None else last.last_s
    for tick in sets:
        is_same = bool(added.ticks) and (added.ticks[-1].generation, added.ticks[-1].step) == (
            tick.generation, tick.step,
        )  # fmt: skip
        if not is_same and (last_s is None or _is_apart(last_s, added.interval_s, tick)):
            added, last_s = add_tick(added, tick), tick.time_s
    if last is not None and last_s == last.last_s:
        return
    values: dict[str, Any] = {
        "interval_s": added.interval_s,
        "last_s": last_s,
        "ticks": [[each.time_s, each.generation, each.step] for each in added.ticks],
    }
    if last is None:
        await connection.execute(mirrors.insert().values(job_id=job_id, **values))
    else:
        await connection.execute(_CHANGED, {"of_job": job_id, **values})


def _is_apart(last_s: float, interval_s: float, tick: StepMark) -> bool:
    return tick.time_s > last_s and tick.time_s >= last_s + interval_s


async def ticks_of(connection: AsyncConnection, job_id: str) -> MirrorTicks:
    """Return the recorded sets of a job."""
    row = (await connection.execute(_TICKS, {"of_job": job_id})).one_or_none()
    if row is None or isinstance(row.ticks, CorruptJson):
        return MirrorTicks()
    ticks = [StepMark(int(generation), int(step), float(time_s)) for time_s, generation, step in row.ticks]
    return MirrorTicks(ticks, row.interval_s)
