"""Use cases of audit records: list and export what a sender may see, and seal new records."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

import structlog

from regroup.service.domain.audit import AuditRecord, ChainEnd
from regroup.service.domain.errors import UnavailableError
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.decision import projects_with
from regroup.service.policy.access.roles import Permission
from regroup.service.store.access.audit import BATCH_RECORDS, AuditFilter, Change
from regroup.service.store.store import Store

_INTERVAL_S = 1.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Chain:
    """The ends of the chain of sealed records."""

    start: ChainEnd
    """The point before the oldest record that exists."""
    end: ChainEnd
    """The newest sealed record."""


class Audit:
    """Use cases of audit records.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store.audit, clock

    async def page(
        self, sender: Sender, selection: AuditFilter, project: str | None, before_id: int | None, limit: int
    ) -> list[AuditRecord]:
        """Return up to `limit` records that the sender may see, the newest first.

        Args:
            selection: filter; its projects are replaced.
            project: only records of this project; None for all.
            before_id: only records with a lower id.
        """
        return await self._store.page(_visible(sender, selection, project), before_id, limit)

    async def export(
        self, sender: Sender, selection: AuditFilter, project: str | None, after: int
    ) -> AsyncGenerator[list[AuditRecord]]:
        """Yield batches of the sealed records above a position that the sender may see, the oldest first."""
        limited = _visible(sender, selection, project)
        while records := await self._store.sealed_after(after, limited):
            yield records
            after = records[-1].position or after
            if len(records) < BATCH_RECORDS:
                return

    async def chain(self) -> Chain:
        """Return the ends of the chain."""
        return Chain(*await self._store.chain())

    async def record(self, sender: Sender, change: Change) -> None:
        """Record a change outside the database."""
        await self._store.record(sender.author, change, self._clock())


async def run_sealing(store: Store) -> None:
    """Seal new records every second, until cancelled. Several servers may do so at once."""
    while True:
        is_more = False
        try:
            is_more = await store.audit.seal() == BATCH_RECORDS
        except UnavailableError as error:
            _log.warning("the sealing of audit records is delayed", error=str(error))
        await asyncio.sleep(0 if is_more else _INTERVAL_S)


def _visible(sender: Sender, selection: AuditFilter, project: str | None) -> AuditFilter:
    allowed = projects_with(sender.identity, Permission.AUDIT_READ)
    if project is not None:
        only = frozenset({project} if allowed is None or project in allowed else ())
        return replace(selection, projects=only, has_cluster=False)
    return replace(selection, projects=allowed, has_cluster=sender.identity.is_operator)
