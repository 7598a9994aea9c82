"""The steps of an incident, corrected by the stored rows: a supervisor that was lost reports fewer than it received."""

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.job_events import IncidentRevised
from regroup.service.store.tables import generations, steps


async def with_stored_steps(connection: AsyncConnection, job_id: str, incident: IncidentRevised) -> IncidentRevised:
    """Return the incident with the last committed step of its generation, and the steps lost since the restored one."""
    of_generation = sa.and_(steps.c.job_id == job_id, steps.c.generation == incident.generation)
    reached = (await connection.execute(sa.select(sa.func.max(steps.c.step)).where(of_generation))).scalar()
    if reached is None or reached <= incident.at_step:
        return incident
    if incident.steps_lost is None or incident.next_generation is None:
        return replace(incident, at_step=reached)
    following = sa.and_(generations.c.job_id == job_id, generations.c.number == incident.next_generation)
    start = (await connection.execute(sa.select(generations.c.start_step).where(following))).scalar()
    lost = incident.steps_lost if start is None else max(0, reached - start)
    return replace(incident, at_step=reached, steps_lost=lost)
