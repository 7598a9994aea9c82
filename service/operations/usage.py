"""Use cases of usage: device-hours and cost by project, user, accelerator and job, and the storage of ended use."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import structlog

from regroup.service.domain.errors import FieldIssue, SpecError, UnavailableError
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.decision import projects_with
from regroup.service.policy.access.roles import Permission
from regroup.service.policy.usage.report import Consumption, price_seconds
from regroup.service.spec.prices import PriceTable
from regroup.service.store.store import Store
from regroup.service.store.usage import Group, GroupUse, Key, UsageSelection

_INTERVAL_S = 5.0
_BATCH_JOBS = 50
_BATCH_ROWS = 1000
"""Number of rows that an export reads at once."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class UsageRow:
    """Use of one group in the window. Fields by which it is not grouped are None."""

    project: str | None
    user: str | None
    accelerator: str | None
    job: str | None
    job_name: str | None
    device_hours: float
    cost: float | None
    currency: str | None
    unpriced_device_hours: float
    unpriced: tuple[str, ...]


@dataclass(frozen=True)
class UsagePage:
    """Rows of a report."""

    rows: list[UsageRow]
    last: Key | None
    """Key after which the next page starts; None if there is none."""


class Usage:
    """Use cases of usage.

    Args:
        prices: price table; None if the operator set none.
        clock: Unix seconds.
    """

    def __init__(self, store: Store, prices: PriceTable | None, clock: Callable[[], float]) -> None:
        self._store, self._prices, self._clock = store, prices, clock

    def select(
        self, sender: Sender, groups: tuple[Group, ...], from_s: float, to_s: float | None, project: str | None
    ) -> UsageSelection:
        """Return the use in a window that the sender may see. Devices in use count until now.

        Args:
            to_s: end of the window; None for now.
            project: only this project; None for all.

        Raises:
            SpecError: the window ends before it begins.
        """
        if to_s is not None and to_s <= from_s:
            raise SpecError([FieldIssue.at(("to",), f"must be later than the start of the window, {from_s:g}", to_s)])
        now = self._clock()
        allowed = projects_with(sender.identity, Permission.PROJECT_READ)
        if project is not None:
            allowed = frozenset({project} if allowed is None or project in allowed else ())
        return UsageSelection(from_s, now if to_s is None else min(to_s, now), groups, allowed)

    async def page(self, selection: UsageSelection, after: Key | None, limit: int) -> UsagePage:
        """Return up to `limit` rows, in the order of their groups, after the one with key `after`."""
        found = await self._store.usage.page(selection, after, limit + 1)
        rows, has_more = found[:limit], len(found) > limit
        return UsagePage([self._row(selection, use) for use in rows], rows[-1].key if has_more else None)

    async def batches(self, selection: UsageSelection) -> AsyncGenerator[list[UsageRow]]:
        """Yield all rows in batches, in the order of their groups."""
        after: Key | None = None
        while True:
            page = await self.page(selection, after, _BATCH_ROWS)
            yield page.rows
            if (after := page.last) is None:
                return

    def _row(self, selection: UsageSelection, use: GroupUse) -> UsageRow:
        values = dict(zip(selection.groups, use.key, strict=True))
        consumed: Consumption = price_seconds(use.seconds, self._prices)
        return UsageRow(
            project=values.get(Group.PROJECT),
            user=values.get(Group.USER),
            accelerator=values.get(Group.CLASS),
            job=values.get(Group.JOB),
            job_name=use.job_name,
            device_hours=consumed.device_hours,
            cost=consumed.cost,
            currency=None if self._prices is None else self._prices.currency,
            unpriced_device_hours=consumed.unpriced_device_hours,
            unpriced=consumed.unpriced,
        )


async def run_folding(store: Store, clock: Callable[[], float] = time.time) -> None:
    """Store the use of ended jobs every few seconds, until cancelled. Several servers may do so at once."""
    while True:
        try:
            is_more = True
            while is_more:
                is_more = await fold_batch(store, clock())
                await asyncio.sleep(0)  # requests come first
        except UnavailableError as error:
            _log.warning("the use of ended jobs is stored later", error=str(error))
        await asyncio.sleep(_INTERVAL_S)


async def fold_batch(store: Store, now: float) -> bool:
    """Store the use of up to 50 ended jobs; return whether there may be more."""
    found = await store.usage.unfolded(_BATCH_JOBS)
    for job_id in found:
        await store.usage.fold(job_id, now=now)
    return len(found) == _BATCH_JOBS
