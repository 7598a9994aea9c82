"""Storage of deliveries: claim those that are due, record attempts, list the log, and remove old rows.

A claim moves the next attempt into the future. If the server ends during an attempt, the delivery is due again after
`CLAIM_S`: receivers get a notification at least once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.hooks import DeliveryState, HookEvent
from regroup.service.policy.hooks.retries import Attempt, Verdict
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.hooks.lookup import find_hook
from regroup.service.store.jobs.outbox import new_delivery
from regroup.service.store.jobs.totals import REMOVED_ROWS, add
from regroup.service.store.rows.hook_rows import ClaimedDelivery, DeliveryRow, HookRow
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.hook_tables import PENDING, hook_deliveries, hooks
from regroup.service.store.schema.json_values import plain
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.database import Database

CLAIM_S = 60.0
"""Time after which a claimed delivery without a result is due again. It is longer than an attempt."""
HOOK_ATTEMPTS = "hook_attempts"
"""Stored sum: number of attempts, by outcome."""
OUTCOMES = ("delivered", "retried", "failed")
BATCH_ROWS = 1000
MAX_REQUESTED = 1000
"""Number of waiting deliveries of a hook from which on no test and no redelivery is added."""
_MOST_DUE_HOOKS = 200


@dataclass(frozen=True)
class Backlog:
    """Deliveries that wait, for the metrics."""

    pending: int
    untried_s: float
    """Age of the oldest delivery without an attempt, of an enabled hook."""


class DeliveryStore:
    """The part of `Store` for deliveries: `store.hooks.deliveries`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ------------------------------------------------------------ attempts

    async def claim(
        self, lease: Lease, *, busy: Mapping[str, int], per_hook: int, limit: int, now: float
    ) -> list[ClaimedDelivery]:
        """Claim deliveries that are due, for one attempt each. Hooks with fewer attempts in progress are first.

        Args:
            lease: lease of the leader.
            busy: number of attempts in progress, by hook.
            per_hook: maximum number of attempts of one hook at the same time.
            limit: maximum number of deliveries.
            now: Unix seconds.

        Raises:
            PreconditionError: another server leads now.
        """
        async with self._database.read() as connection:
            due = await _due_hooks(connection, now)
        free = {hook_id: per_hook - busy.get(hook_id, 0) for hook_id in due}
        order = sorted((hook_id for hook_id in due if free[hook_id] > 0), key=lambda each: busy.get(each, 0))[:limit]
        if not order:
            return []
        share = max(1, limit // len(order))
        found: list[ClaimedDelivery] = []
        async with self._database.write() as connection:
            await leases.check(connection, lease)
            for hook_id in order:
                count = min(free[hook_id], share, limit - len(found))
                found += await _claim_of(connection, hook_id, count, now)
        return found

    async def finish(
        self, claimed: ClaimedDelivery, attempt: Attempt, verdict: Verdict, duration_s: float, *, now: float
    ) -> None:
        """Record the result of an attempt. Without effect if the delivery was claimed again or deleted."""
        is_pending = verdict.state is DeliveryState.PENDING
        mine = sa.and_(
            hook_deliveries.c.id == claimed.delivery.id,
            hook_deliveries.c.state == DeliveryState.PENDING,
            hook_deliveries.c.attempts == claimed.delivery.attempts,
        )
        values = {
            "state": verdict.state,
            "next_attempt_at": now + verdict.delay_s,
            "finished_at": None if is_pending else now,
            "status_code": attempt.status_code,
            "duration_s": duration_s,
            "error": plain(attempt.error),
        }
        async with self._database.write() as connection:
            if verdict.disables_hook:  # the hook is locked first, as by its deletion
                locked = sa.select(hooks.c.id).where(hooks.c.id == claimed.hook.id)
                await connection.execute(locked.with_for_update(key_share=True))
            if (await connection.execute(hook_deliveries.update().where(mine).values(**values))).rowcount:
                if verdict.disables_hook:
                    hook = hooks.update().where(hooks.c.id == claimed.hook.id)
                    await connection.execute(hook.values(is_enabled=False))
                await add(connection, {(HOOK_ATTEMPTS, ("retried" if is_pending else verdict.state.value,)): 1})

    # ------------------------------------------------------------ requests of users

    async def request(
        self, project: str, hook_id: str, event: HookEvent, *, now: float, author: Author = CONTROLLER
    ) -> DeliveryRow:
        """Write a delivery that tests a hook.

        Raises:
            NotFoundError: the project does not have the hook.
            ConflictError: the hook is disabled, or too many of its deliveries wait.
        """
        async with self._database.write() as connection:
            hook = await find_hook(connection, project, hook_id, is_locked=True)
            return await _add(connection, hook, event, None, "hooks.test", now, author)

    async def repeat(
        self, project: str, hook_id: str, delivery_id: int, *, now: float, author: Author = CONTROLLER
    ) -> DeliveryRow:
        """Write a delivery that repeats another one, with its message. Raises the errors of `request`."""
        async with self._database.write() as connection:
            hook = await find_hook(connection, project, hook_id, is_locked=True)
            former = await _find(connection, hook_id, delivery_id)
            return await _add(connection, hook, former.event, delivery_id, "hooks.redeliver", now, author)

    async def delivery(self, project: str, hook_id: str, delivery_id: int) -> DeliveryRow:
        """Return a delivery; raises NotFoundError if the project does not have it."""
        async with self._database.read() as connection:
            await find_hook(connection, project, hook_id)
            return await _find(connection, hook_id, delivery_id)

    async def page(
        self, project: str, hook_id: str, state: DeliveryState | None, before_id: int | None, limit: int
    ) -> list[DeliveryRow]:
        """Return up to `limit` deliveries with ids below `before_id`, the newest first; raises NotFoundError."""
        query = sa.select(hook_deliveries).where(hook_deliveries.c.hook_id == hook_id)
        if state is not None:
            query = query.where(hook_deliveries.c.state == state)
        if before_id is not None:
            query = query.where(hook_deliveries.c.id < before_id)
        async with self._database.read() as connection:
            await find_hook(connection, project, hook_id)
            rows = (await connection.execute(query.order_by(hook_deliveries.c.id.desc()).limit(limit))).mappings()
            return [DeliveryRow.of(row) for row in rows]

    # ------------------------------------------------------------ metrics and retention

    async def backlog(self) -> Backlog:
        """Return how many deliveries wait, and for how long. Reads only waiting ones."""
        waiting = sa.select(sa.func.count()).select_from(hook_deliveries).where(PENDING)
        untried = sa.select(sa.func.min(hook_deliveries.c.created_at)).where(
            PENDING,
            hook_deliveries.c.attempts == 0,
            hook_deliveries.c.hook_id.in_(sa.select(hooks.c.id).where(hooks.c.is_enabled.is_(True))),
        )
        async with self._database.read() as connection:
            count = int((await connection.execute(waiting)).scalar_one())
            oldest = (await connection.execute(untried)).scalar() if count else None
            return Backlog(count, 0.0 if oldest is None else max(0.0, await self._database.now(connection) - oldest))

    async def fail_old(self, created_before: float, *, now: float) -> int:
        """Fail a batch of deliveries that wait for too long; return their number."""
        old = sa.select(hook_deliveries.c.id).where(PENDING, hook_deliveries.c.created_at < created_before)
        async with self._database.write() as connection:
            found = (await connection.execute(old.limit(BATCH_ROWS).with_for_update(skip_locked=True))).scalars().all()
            if found:
                failed = hook_deliveries.update().where(hook_deliveries.c.id.in_(found))
                why = "it waited for too long: the hook is disabled, or its receiver is too slow for its events"
                await connection.execute(failed.values(state=DeliveryState.FAILED, finished_at=now, error=why))
                await add(connection, {(HOOK_ATTEMPTS, ("failed",)): len(found)})
        return len(found)

    async def remove_before(self, finished_before: float) -> int:
        """Remove a batch of deliveries that ended before this time; return their number."""
        old = sa.select(hook_deliveries.c.id).where(hook_deliveries.c.finished_at < finished_before)
        async with self._database.write() as connection:
            found = (await connection.execute(old.limit(BATCH_ROWS).with_for_update(skip_locked=True))).scalars().all()
            if found:
                await connection.execute(hook_deliveries.delete().where(hook_deliveries.c.id.in_(found)))
                await add(connection, {(REMOVED_ROWS, ("hook_deliveries",)): len(found)})
        return len(found)


async def _due_hooks(connection: AsyncConnection, now: float) -> list[str]:
    """Return the enabled hooks with deliveries that are due, the one that waits longest first."""
    query = (
        sa.select(hook_deliveries.c.hook_id)
        .join(hooks, hooks.c.id == hook_deliveries.c.hook_id)
        .where(PENDING, hook_deliveries.c.next_attempt_at <= now, hooks.c.is_enabled.is_(True))
        .group_by(hook_deliveries.c.hook_id)
        .order_by(sa.func.min(hook_deliveries.c.next_attempt_at), hook_deliveries.c.hook_id)
    )
    return [str(hook_id) for hook_id in (await connection.execute(query.limit(_MOST_DUE_HOOKS))).scalars()]


async def _claim_of(connection: AsyncConnection, hook_id: str, count: int, now: float) -> list[ClaimedDelivery]:
    hook = (await connection.execute(sa.select(hooks).where(hooks.c.id == hook_id))).mappings().one_or_none()
    if hook is None or count <= 0:
        return []
    due = (
        sa.select(hook_deliveries)
        .where(hook_deliveries.c.hook_id == hook_id, PENDING, hook_deliveries.c.next_attempt_at <= now)
        .order_by(hook_deliveries.c.next_attempt_at, hook_deliveries.c.id)
        .limit(count)
    )
    rows = (await connection.execute(due.with_for_update(skip_locked=True))).mappings().all()
    found: list[ClaimedDelivery] = []
    for row in rows:
        begun = {"attempts": row["attempts"] + 1, "attempted_at": now, "duration_s": None}
        values = {**begun, "next_attempt_at": now + CLAIM_S}
        await connection.execute(hook_deliveries.update().where(hook_deliveries.c.id == row["id"]).values(**values))
        found.append(ClaimedDelivery(DeliveryRow.of({**row, **values}), HookRow.of(hook)))
    return found


async def _find(connection: AsyncConnection, hook_id: str, delivery_id: int) -> DeliveryRow:
    query = sa.select(hook_deliveries).where(hook_deliveries.c.id == delivery_id, hook_deliveries.c.hook_id == hook_id)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(
            f"hook {hook_id!r} has no delivery {delivery_id}; `regroup hooks deliveries` lists those that are kept"
        )
    return DeliveryRow.of(row)


async def _add(
    connection: AsyncConnection,
    hook: HookRow,
    event: HookEvent,
    redelivery_of: int | None,
    action: str,
    now: float,
    author: Author,
) -> DeliveryRow:
    if not hook.is_enabled:
        raise ConflictError(f"hook {hook.id!r} is disabled; enable it with `regroup hooks enable`")
    waiting = sa.select(sa.func.count()).select_from(hook_deliveries)
    count = (await connection.execute(waiting.where(PENDING, hook_deliveries.c.hook_id == hook.id))).scalar_one()
    if count >= MAX_REQUESTED:
        raise ConflictError(f"{count} deliveries of hook {hook.id!r} wait; try again when its receiver has got them")
    added = hook_deliveries.insert().values(**new_delivery(hook.id, event, redelivery_of))
    delivery_id = (await connection.execute(added.returning(hook_deliveries.c.id))).scalar_one()
    after = {"delivery": delivery_id, "message": event.message_id, "redelivery_of": redelivery_of}
    await record_change(connection, author, Change(action, hook.id, hook.project, after=after), now)
    return await _find(connection, hook.id, delivery_id)
