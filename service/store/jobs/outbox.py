"""The outbox: deliveries are written in the transaction of the event, so a crash loses none and invents none.

A project without hooks pays nothing per event. The statement that locks a job's row, or inserts it, also returns
whether the project has hooks; only then the hooks are read, once for each transaction.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.hooks import DeliveryState, HookEvent, HookFilter, limit_data
from regroup.service.policy.hooks.match import is_delivered
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.rows.records import JobRow
from regroup.service.store.schema.hook_tables import hook_deliveries, hooks
from regroup.service.store.schema.json_values import plain

HAS_HOOKS = "has_hooks"
"""Name of the column of `has_hooks`."""


def has_hooks(project: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the column that tells whether a project has enabled hooks."""
    found = sa.select(hooks.c.id).where(hooks.c.project == project, hooks.c.is_enabled.is_(True))
    return sa.exists(found).label(HAS_HOOKS)


class Outbox:
    """Writes the deliveries of jobs' events in the transaction of a connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._hooks: dict[str, Mapping[str, HookFilter]] = {}
        """Project → its enabled hooks."""

    async def add(
        self,
        job: JobRow,
        kind: str,
        data: Mapping[str, Any],
        *,
        number: int,
        generation: int,
        actor: str,
        time_s: float,
    ) -> None:
        """Write a delivery for each hook of the job's project that selects the event."""
        if job.project not in self._hooks:
            self._hooks[job.project] = await self._read(job.project)
        event = HookEvent(
            f"{job.id}-{number}", kind, job.project, time_s, actor, limit_data(plain(data)),
            job.id, job.name, plain(job.labels), number, generation,
        )  # fmt: skip
        chosen = [hook_id for hook_id, selection in self._hooks[job.project].items() if is_delivered(event, selection)]
        if chosen:
            values = [new_delivery(hook_id, event) for hook_id in chosen]
            await self._connection.execute(hook_deliveries.insert(), values)

    async def _read(self, project: str) -> Mapping[str, HookFilter]:
        """Return the enabled hooks, locked against their deletion: deliveries refer to them."""
        query = sa.select(hooks).where(hooks.c.project == project, hooks.c.is_enabled.is_(True)).order_by(hooks.c.id)
        rows = (await self._connection.execute(query.with_for_update(read=True, key_share=True))).mappings()
        return {hook.id: hook.selection for hook in map(HookRow.of, rows)}


def new_delivery(hook_id: str, event: HookEvent, redelivery_of: int | None = None) -> dict[str, Any]:
    """Return the columns of a delivery that is due at once. The database sets the id and the time."""
    return {
        "hook_id": hook_id,
        "message_id": event.message_id,
        "event": event.to_json(),
        "state": DeliveryState.PENDING,
        "attempts": 0,
        "next_attempt_at": 0.0,
        "error": "",
        "redelivery_of": redelivery_of,
    }
