"""Persistent state of access: identities, members of projects, and tokens."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.database import Database
from regroup.service.store.identity_rows import IdentityRow, MemberRow, StoredToken, TokenRow
from regroup.service.store.tables import identities, members, tokens


class IdentityStore:
    """The part of `Store` for access: `store.identities`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ------------------------------------------------------------ identities

    async def identities(self) -> list[IdentityRow]:
        """Return all identities, by subject."""
        async with self._database.read() as connection:
            rows = (await connection.execute(sa.select(identities).order_by(identities.c.subject))).mappings()
            return [_identity(row) for row in rows]

    async def identity(self, subject: str) -> IdentityRow:
        """Return the identity; raises NotFoundError."""
        async with self._database.read() as connection:
            return await _find_identity(connection, subject)

    async def create_identity(self, row: IdentityRow) -> None:
        """Create an identity; raises ConflictError if the subject exists."""
        async with self._database.write() as connection:
            try:
                async with connection.begin_nested():
                    await connection.execute(identities.insert().values(**dataclasses.asdict(row)))
            except exc.IntegrityError as error:
                raise ConflictError(f"identity {row.subject!r} exists; choose another name") from error

    async def change_identity(self, subject: str, **changes: Any) -> IdentityRow:
        """Change columns of an identity: `is_operator`, `disabled_at`. Raises NotFoundError."""
        async with self._database.write() as connection:
            await connection.execute(identities.update().where(identities.c.subject == subject).values(**changes))
            return await _find_identity(connection, subject)

    async def delete_identity(self, subject: str) -> None:
        """Delete an identity with its memberships and tokens; raises NotFoundError."""
        async with self._database.write() as connection:
            await _find_identity(connection, subject)
            await connection.execute(members.delete().where(members.c.subject == subject))
            await connection.execute(tokens.delete().where(tokens.c.subject == subject))
            await connection.execute(identities.delete().where(identities.c.subject == subject))

    # ------------------------------------------------------------ members

    async def members(self, project: str) -> list[MemberRow]:
        """Return the members of a project, by subject."""
        query = sa.select(members).where(members.c.project == project).order_by(members.c.subject)
        async with self._database.read() as connection:
            return [_member(row) for row in (await connection.execute(query)).mappings()]

    async def memberships(self, subjects: list[str]) -> list[MemberRow]:
        """Return the memberships of subjects, by project and subject."""
        async with self._database.read() as connection:
            return await _memberships(connection, subjects)

    async def put_member(self, row: MemberRow) -> None:
        """Create or replace a membership.

        Raises:
            NotFoundError: no identity has this subject. A group needs none.
        """
        async with self._database.write() as connection:
            if not row.subject.startswith("group:"):
                await _find_identity(connection, row.subject)
            same = sa.and_(members.c.project == row.project, members.c.subject == row.subject)
            await connection.execute(members.delete().where(same))
            await connection.execute(
                members.insert().values(
                    project=row.project,
                    subject=row.subject,
                    role=row.membership.role,
                    permissions=sorted(row.membership.permissions),
                    created_at=row.created_at,
                    created_by=row.created_by,
                )
            )

    async def remove_member(self, project: str, subject: str) -> None:
        """Delete a membership; raises NotFoundError."""
        same = sa.and_(members.c.project == project, members.c.subject == subject)
        async with self._database.write() as connection:
            if not (await connection.execute(members.delete().where(same))).rowcount:
                raise NotFoundError(f"{subject!r} is not a member of project {project!r}")

    # ------------------------------------------------------------ tokens

    async def create_token(self, row: TokenRow) -> None:
        """Store a token; raises NotFoundError if its subject does not exist."""
        async with self._database.write() as connection:
            await _find_identity(connection, row.subject)
            await connection.execute(tokens.insert().values(**dataclasses.asdict(row)))

    async def tokens(self, subject: str | None = None) -> list[TokenRow]:
        """Return the tokens of a subject, or all, the newest first."""
        query = sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.id)
        if subject is not None:
            query = query.where(tokens.c.subject == subject)
        async with self._database.read() as connection:
            return [_token(row) for row in (await connection.execute(query)).mappings()]

    async def token(self, token_id: str) -> TokenRow:
        """Return the token with this id; raises NotFoundError."""
        async with self._database.read() as connection:
            return await _find_token(connection, token_id)

    async def stored_token(self, token_id: str) -> StoredToken | None:
        """Return the token with its identity and memberships, as one snapshot; None if there is no such token."""
        async with self._database.read_snapshot() as connection:
            try:
                token = await _find_token(connection, token_id)
                identity = await _find_identity(connection, token.subject)
            except NotFoundError:
                return None
            return StoredToken(token, identity, tuple(await _memberships(connection, [token.subject])))

    async def revoke_token(self, token_id: str, now: float) -> TokenRow:
        """Revoke a token. Without effect if it is revoked. Raises NotFoundError."""
        live = sa.and_(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        async with self._database.write() as connection:
            await connection.execute(tokens.update().where(live).values(revoked_at=now))
            return await _find_token(connection, token_id)

    async def record_uses(self, uses: Mapping[str, float]) -> None:
        """Store the times of the last use, by token."""
        async with self._database.write() as connection:
            for token_id, used_at in uses.items():
                older = sa.or_(tokens.c.used_at.is_(None), tokens.c.used_at < used_at)
                same = sa.and_(tokens.c.id == token_id, older)
                await connection.execute(tokens.update().where(same).values(used_at=used_at))


async def _find_identity(connection: AsyncConnection, subject: str) -> IdentityRow:
    query = sa.select(identities).where(identities.c.subject == subject)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no identity {subject!r}")
    return _identity(row)


async def _find_token(connection: AsyncConnection, token_id: str) -> TokenRow:
    row = (await connection.execute(sa.select(tokens).where(tokens.c.id == token_id))).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no token {token_id!r}; `regroup token list` lists them")
    return _token(row)


async def _memberships(connection: AsyncConnection, subjects: list[str]) -> list[MemberRow]:
    query = sa.select(members).where(members.c.subject.in_(subjects)).order_by(members.c.project, members.c.subject)
    return [_member(row) for row in (await connection.execute(query)).mappings()]


def _identity(row: Mapping[Any, Any]) -> IdentityRow:
    values: dict[str, Any] = {**row, "kind": IdentityKind(row["kind"])}
    return IdentityRow(**values)


def _member(row: Mapping[Any, Any]) -> MemberRow:
    membership = Membership(Role(row["role"]), frozenset(row["permissions"]))
    return MemberRow(row["project"], row["subject"], membership, row["created_at"], row["created_by"])


def _token(row: Mapping[Any, Any]) -> TokenRow:
    values: dict[str, Any] = {**row, "role": None if row["role"] is None else Role(row["role"])}
    return TokenRow(**values)
