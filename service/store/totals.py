"""Sums over the whole store, read at each metrics scrape."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.states import JobState
from regroup.service.store.records import Totals
from regroup.service.store.tables import checkpoints, incidents, jobs


async def totals(connection: AsyncConnection, now: float) -> Totals:
    """Return counts and sums. Every state has a count, also without jobs."""
    by_state = await connection.execute(sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state))
    counted = {JobState(state): int(count) for state, count in by_state}
    # Prefer the reason: there are few reasons, but a cause contains ranks and nodes.
    reason = sa.func.coalesce(incidents.c.data["reason"].as_string(), incidents.c.cause).label("cause")
    reasons = sa.select(reason).subquery()
    by_cause = await connection.execute(sa.select(reasons.c.cause, sa.func.count()).group_by(reasons.c.cause))
    held = sa.select(sa.func.coalesce(sa.func.sum(checkpoints.c.size_bytes), 0)).where(
        checkpoints.c.removed_at.is_(None)
    )
    oldest = sa.select(sa.func.min(jobs.c.queued_at)).where(jobs.c.state == JobState.QUEUED)
    queued_at = (await connection.execute(oldest)).scalar_one()
    return Totals(
        jobs={state: counted.get(state, 0) for state in JobState},
        incidents={str(cause): int(count) for cause, count in by_cause},
        checkpoint_bytes=int((await connection.execute(held)).scalar_one()),
        queue_wait_s=0.0 if queued_at is None else max(0.0, now - float(queued_at)),
    )
