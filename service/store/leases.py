"""The leader's lease: who holds it, a token that only grows, expiry by the database's clock."""

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import PreconditionError
from regroup.service.store.records import Lease
from regroup.service.store.tables import leases

LEADER = "leader"


async def acquire(
    connection: AsyncConnection, holder: str, ttl_s: float, now: float, single_process: bool
) -> Lease | None:
    """The lease under a new token, or None while another holder's has not expired.

    Args:
        single_process: do not wait for expiry: the caller is known to be the only process.
    """
    row = (await connection.execute(sa.select(leases).where(leases.c.name == LEADER).with_for_update())).one_or_none()
    if row is None:
        insert = leases.insert().values(name=LEADER, holder=holder, token=1, expires_at=now + ttl_s)
        try:
            async with connection.begin_nested():
                await connection.execute(insert)
        except exc.IntegrityError:
            return None
        return Lease(LEADER, holder, 1)
    if row.holder not in ("", holder) and row.expires_at > now and not single_process:
        return None
    token = int(row.token) + 1
    await connection.execute(
        leases.update().where(leases.c.name == LEADER).values(holder=holder, token=token, expires_at=now + ttl_s)
    )
    return Lease(LEADER, holder, token)


async def renew(connection: AsyncConnection, lease: Lease, ttl_s: float, now: float) -> None:
    """Hold the lease for `ttl_s` more seconds.

    Raises:
        PreconditionError: another holder has it.
    """
    update = leases.update().where(leases.c.name == lease.name, leases.c.token == lease.token)
    if (await connection.execute(update.values(expires_at=now + ttl_s))).rowcount != 1:
        raise _lost(lease)


async def release(connection: AsyncConnection, lease: Lease) -> None:
    """Let another take it at once; nothing happens if another already has."""
    update = leases.update().where(leases.c.name == lease.name, leases.c.token == lease.token)
    await connection.execute(update.values(holder="", expires_at=0.0, token=lease.token + 1))


async def check(connection: AsyncConnection, lease: Lease) -> None:
    """Fence: nobody can take the lease over until this transaction ends.

    Raises:
        PreconditionError: another holder has it.
    """
    query = sa.select(leases.c.token).where(leases.c.name == lease.name).with_for_update(read=True)
    if (await connection.execute(query)).scalar_one_or_none() != lease.token:
        raise _lost(lease)


def _lost(lease: Lease) -> PreconditionError:
    return PreconditionError(
        f"lease {lease.name!r} with token {lease.token} of {lease.holder} has passed to another; stop leading"
    )
