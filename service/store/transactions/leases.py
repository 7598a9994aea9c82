"""The leader's lease: its holder, a token that only grows, and its expiry by the database's clock."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import PreconditionError
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.tables import leases
from regroup.service.store.transactions.inserts import add_if_absent

LEADER = "leader"
_TOKEN = (
    sa.select(leases.c.token)
    .where(leases.c.name == sa.bindparam("of_lease"))
    .with_for_update(read=True, key_share=True)  # this lock excludes `acquire`, but neither `renew` nor other writers
)


async def acquire(
    connection: AsyncConnection, holder: str, ttl_s: float, now: float, single_process: bool
) -> Lease | None:
    """Return the lease with a new token; None if another holder's lease has not expired.

    Args:
        single_process: True if no other process can use the database. The lease is then acquired before its expiry.
    """
    row = (await connection.execute(sa.select(leases).where(leases.c.name == LEADER).with_for_update())).one_or_none()
    if row is None:
        first = {"name": LEADER, "holder": holder, "token": 1, "expires_at": now + ttl_s}
        return Lease(LEADER, holder, 1) if await add_if_absent(connection, leases, **first) else None
    if row.holder not in ("", holder) and row.expires_at > now and not single_process:
        return None
    token = int(row.token) + 1
    await connection.execute(
        leases.update().where(leases.c.name == LEADER).values(holder=holder, token=token, expires_at=now + ttl_s)
    )
    return Lease(LEADER, holder, token)


async def renew(connection: AsyncConnection, lease: Lease, ttl_s: float, now: float) -> None:
    """Extend the lease by `ttl_s` seconds from now.

    Raises:
        PreconditionError: another holder has it.
    """
    update = leases.update().where(leases.c.name == lease.name, leases.c.token == lease.token)
    if (await connection.execute(update.values(expires_at=now + ttl_s))).rowcount != 1:
        raise _lost(lease)


async def release(connection: AsyncConnection, lease: Lease) -> None:
    """Release the lease, so that another process can acquire it at once. Without effect if another has it."""
    update = leases.update().where(leases.c.name == lease.name, leases.c.token == lease.token)
    await connection.execute(update.values(holder="", expires_at=0.0, token=lease.token + 1))


async def check(connection: AsyncConnection, lease: Lease) -> None:
    """Check the lease, and lock it: no other process can acquire it until this transaction ends. It can be renewed.

    Raises:
        PreconditionError: another holder has it.
    """
    if (await connection.execute(_TOKEN, {"of_lease": lease.name})).scalar_one_or_none() != lease.token:
        raise _lost(lease)


def _lost(lease: Lease) -> PreconditionError:
    return PreconditionError(
        f"lease {lease.name!r} with token {lease.token} of {lease.holder} now belongs to another process; stop leading"
    )
