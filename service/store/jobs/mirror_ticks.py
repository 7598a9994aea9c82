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


async def record_set(connection: AsyncConnection, job_id: str, tick: StepMark) -> None:
    """Record that the nodes hold a set, unless the last recorded one is too close. The job's row must be locked."""
    mine = mirrors.c.job_id == job_id
    times = sa.select(mirrors.c.last_s, mirrors.c.interval_s).where(mine)
    last = (await connection.execute(times)).one_or_none()
    if last is not None and (tick.time_s <= last.last_s or tick.time_s < last.last_s + last.interval_s):
        return
    found = await ticks_of(connection, job_id)
    if found.ticks and (found.ticks[-1].generation, found.ticks[-1].step) == (tick.generation, tick.step):
        return
    added = add_tick(found, tick)
    values: dict[str, Any] = {
        "interval_s": added.interval_s,
        "last_s": tick.time_s,
        "ticks": [[each.time_s, each.generation, each.step] for each in added.ticks],
    }
    if last is None:
        await connection.execute(mirrors.insert().values(job_id=job_id, **values))
    else:
        await connection.execute(mirrors.update().where(mine).values(**values))


async def ticks_of(connection: AsyncConnection, job_id: str) -> MirrorTicks:
    """Return the recorded sets of a job."""
    query = sa.select(mirrors.c.ticks, mirrors.c.interval_s).where(mirrors.c.job_id == job_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None or isinstance(row.ticks, CorruptJson):
        return MirrorTicks()
    ticks = [StepMark(int(generation), int(step), float(time_s)) for time_s, generation, step in row.ticks]
    return MirrorTicks(ticks, row.interval_s)
