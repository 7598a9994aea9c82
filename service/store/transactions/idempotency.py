"""Answers of requests by their keys: a request that is repeated with its key takes effect once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError
from regroup.service.store.schema.tables import idempotency
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.inserts import insert_if_absent

_SAME = sa.tuple_(idempotency.c.scope, idempotency.c.key)


@dataclass(frozen=True)
class RequestKey:
    """The key of a request. Keys of different senders and routes are independent."""

    scope: str
    """Sender and route."""
    key: str
    body_hash: str
    """Digest of all that the request says."""

    @property
    def name(self) -> tuple[str, str]:
        """The columns of the primary key."""
        return self.scope, self.key


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
        (refusal,) = await self.reserve_all(connection, [(request, response)], now=now)
        if refusal is not None:
            raise refusal

    async def reserve_all(
        self, connection: AsyncConnection, requests: Sequence[tuple[RequestKey, Any]], *, now: float
    ) -> list[ConflictError | None]:
        """Store the keys of several requests with their responses, in one transaction.

        Returns:
            For each request None, or the error that `reserve` raises.
        """
        since = now - self._kept_s
        stored = sa.select(idempotency.c.scope, idempotency.c.key, idempotency.c.body_hash, idempotency.c.response)
        names = sorted({request.name for request, _ in requests})
        valid = stored.where(_SAME.in_(names), idempotency.c.created_at > since)
        earlier = {(row.scope, row.key): row for row in await connection.execute(valid)}
        new = {request.name: (request, response) for request, response in reversed(requests)}
        fresh = [name for name in names if name not in earlier]
        reserved = set[tuple[str, str]]()
        if fresh:
            await connection.execute(idempotency.delete().where(_SAME.in_(fresh), idempotency.c.created_at <= since))
            rows = [_row(*new[name], now) for name in fresh]
            added = insert_if_absent(connection.dialect.name, idempotency).returning(
                idempotency.c.scope, idempotency.c.key
            )
            reserved = {(row.scope, row.key) for row in await connection.execute(added, rows)}
        found = list[ConflictError | None]()
        for request, _ in requests:
            if (row := earlier.get(request.name)) is not None:
                found.append(RepeatedRequestError(str(row.body_hash), row.response))
            elif request.name in reserved:
                reserved.remove(request.name)  # of two requests with one key, the first one has it
                found.append(None)
            else:
                in_progress = f"another request with Idempotency-Key {request.key!r} is in progress; send it again"
                found.append(ConflictError(in_progress))
        return found

    async def remove(self, connection: AsyncConnection, requests: Sequence[RequestKey]) -> None:
        """Remove keys that this transaction has reserved."""
        names = sorted({request.name for request in requests})
        await connection.execute(idempotency.delete().where(_SAME.in_(names)))

    async def complete(self, request: RequestKey, response: Any) -> None:
        """Store the response of a request whose key is reserved."""
        same = sa.and_(idempotency.c.scope == request.scope, idempotency.c.key == request.key)
        async with self._database.write() as connection:
            await connection.execute(idempotency.update().where(same).values(response=response))


def _row(request: RequestKey, response: Any, now: float) -> dict[str, Any]:
    row = {"scope": request.scope, "key": request.key, "body_hash": request.body_hash}
    return {**row, "response": response, "created_at": now}


async def _find(connection: AsyncConnection, scope: str, key: str, since: float) -> tuple[str, Any] | None:
    query = sa.select(idempotency.c.body_hash, idempotency.c.response).where(
        idempotency.c.scope == scope, idempotency.c.key == key, idempotency.c.created_at > since
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else (str(row.body_hash), row.response)
