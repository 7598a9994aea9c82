"""Rows of incidents. Stored steps correct them: a supervisor that replaces a lost one knows fewer steps."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.job_events import EventType, IncidentRevised, encode
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.schema.json_values import plain
from regroup.service.store.schema.tables import generations, incidents, steps


async def write_incident(writer: JobWriter, incident: IncidentRevised, *, key: str, time_s: float, actor: str) -> None:
    """Write a revision of an incident as an event, and as the newest state of the incident's row."""
    job_id = writer.job.id
    data: dict[str, Any] = plain(encode(await _with_stored_steps(writer.connection, job_id, incident)))
    number = await writer.record(
        EventType.INCIDENT, data, time_s=time_s, actor=actor, key=key, generation=incident.generation
    )
    own_row = sa.and_(incidents.c.job_id == job_id, incidents.c.id == incident.id)
    filled = incidents.update().where(own_row).values(cause=data["cause"], data=data)
    if (await writer.connection.execute(filled)).rowcount == 0:
        first = {"id": incident.id, "number": number, "cause": data["cause"], "time_s": time_s, "data": data}
        await writer.connection.execute(incidents.insert().values(job_id=job_id, **first))


async def _with_stored_steps(connection: AsyncConnection, job_id: str, incident: IncidentRevised) -> IncidentRevised:
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
