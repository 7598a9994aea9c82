"""Answers of requests by their keys: a request that is repeated with its key takes effect once."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError
from regroup.service.store.schema.tables import idempotency
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.inserts import add_if_absent


@dataclass(frozen=True)
class RequestKey:
    """The key of a request. Keys of different senders and routes are independent."""

    scope: str
    """Sender and route."""
    key: str
    body_hash: str
    """Digest of all that the request says."""


class RepeatedRequestError(ConflictError):
    """An earlier request has the same key."""

    def __init__(self, body_hash: str, response: Any) -> None:
        super().__init__("a request with this Idempotency-Key was processed before")
        self.body_hash, self.response = body_hash, response


class IdempotencyStore:
    """The part of `Store` for the keys of requests: `store.idempotency`."""

    def __init__(self, database: Database, kept_s: float) -> None:
        self._database, self._kept_s = database, kept_s

    async def find(self, scope: str, key: str, *, now: float) -> tuple[str, Any] | None:
        """Return the hash of the body and the response of this key if it is still valid, else None."""
        async with self._database.read() as connection:
            return await _find(connection, scope, key, now - self._kept_s)

    async def reserve(self, connection: AsyncConnection, request: RequestKey, response: Any, *, now: float) -> None:
        """Store a key in the transaction of its request.

        Raises:
            RepeatedRequestError: an earlier request has the key.
            ConflictError: a request with the key is in progress.
        """
        since = now - self._kept_s
        if (found := await _find(connection, request.scope, request.key, since)) is not None:
            raise RepeatedRequestError(*found)
        same = sa.and_(idempotency.c.scope == request.scope, idempotency.c.key == request.key)
        await connection.execute(idempotency.delete().where(same, idempotency.c.created_at <= since))
        row = {"scope": request.scope, "key": request.key, "body_hash": request.body_hash}
        if not await add_if_absent(connection, idempotency, **row, response=response, created_at=now):
            raise ConflictError(f"another request with Idempotency-Key {request.key!r} is in progress; send it again")

    async def complete(self, request: RequestKey, response: Any) -> None:
        """Store the response of a request whose key is reserved."""
        same = sa.and_(idempotency.c.scope == request.scope, idempotency.c.key == request.key)
        async with self._database.write() as connection:
            await connection.execute(idempotency.update().where(same).values(response=response))


async def _find(connection: AsyncConnection, scope: str, key: str, since: float) -> tuple[str, Any] | None:
    query = sa.select(idempotency.c.body_hash, idempotency.c.response).where(
        idempotency.c.scope == scope, idempotency.c.key == key, idempotency.c.created_at > since
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else (str(row.body_hash), row.response)
