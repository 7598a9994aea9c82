"""Persistent state of access: identities, members of projects, and tokens."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.access.sessions import SessionStore
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, StoredToken, TokenRow
from regroup.service.store.schema.access_tables import identities, members, sessions, tokens
from regroup.service.store.transactions.database import Database
from regroup.service.store.transactions.inserts import add_if_absent


class IdentityStore:
    """The part of `Store` for access: `store.identities`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sessions = SessionStore(database)

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

    async def create_identity(self, row: IdentityRow, *, author: Author = CONTROLLER) -> None:
        """Create an identity; raises ConflictError if the subject exists."""
        async with self._database.write() as connection:
            if not await add_if_absent(connection, identities, **row.facts):
                raise ConflictError(f"identity {row.subject!r} exists; choose another name")
            change = Change("identities.create", row.subject, row.project, after=row.facts)
            await record_change(connection, author, change, row.created_at)

    async def change_identity(
        self, subject: str, *, now: float = 0.0, author: Author = CONTROLLER, **changes: Any
    ) -> IdentityRow:
        """Change columns of an identity: `is_operator`, `disabled_at`, `permissions`. Raises NotFoundError."""
        async with self._database.write() as connection:
            before = await _find_identity(connection, subject)
            await connection.execute(identities.update().where(identities.c.subject == subject).values(**changes))
            after = await _find_identity(connection, subject)
            facts = before.facts, after.facts
            await record_change(connection, author, Change("identities.change", subject, after.project, *facts), now)
            return after

    async def delete_identity(self, subject: str, *, now: float = 0.0, author: Author = CONTROLLER) -> None:
        """Delete an identity with its memberships, tokens and sessions; raises NotFoundError."""
        async with self._database.write() as connection:
            row = await _find_identity(connection, subject)
            belongings = {
                "memberships": [each.facts for each in await _memberships(connection, [subject])],
                "tokens": [each.facts for each in await _tokens(connection, subject)],
            }
            before = {**row.facts, **belongings}
            change = Change("identities.delete", subject, row.project, before, etag_before=row.etag)
            await record_change(connection, author, change, now)
            await connection.execute(members.delete().where(members.c.subject == subject))
            await connection.execute(sessions.delete().where(sessions.c.subject == subject))
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

    async def put_member(self, row: MemberRow, *, author: Author = CONTROLLER) -> None:
        """Create or replace a membership.

        Raises:
            NotFoundError: no identity has this subject. A group needs none.
        """
        async with self._database.write() as connection:
            if not row.subject.startswith("group:"):
                await _find_identity(connection, row.subject)
            same = sa.and_(members.c.project == row.project, members.c.subject == row.subject)
            before = await _find_member(connection, same)
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
            change = Change("members.put", row.subject, row.project, before, row.facts)
            await record_change(connection, author, change, row.created_at)

    async def remove_member(self, project: str, subject: str, *, now: float = 0.0, author: Author = CONTROLLER) -> None:
        """Delete a membership; raises NotFoundError."""
        same = sa.and_(members.c.project == project, members.c.subject == subject)
        async with self._database.write() as connection:
            before = await _find_member(connection, same)
            if before is None:
                raise NotFoundError(f"{subject!r} is not a member of project {project!r}")
            await connection.execute(members.delete().where(same))
            await record_change(connection, author, Change("members.remove", subject, project, before), now)

    # ------------------------------------------------------------ tokens

    async def create_token(self, row: TokenRow, *, author: Author = CONTROLLER) -> None:
        """Store a token; raises NotFoundError if its subject does not exist."""
        async with self._database.write() as connection:
            owner = await _find_identity(connection, row.subject)
            await connection.execute(tokens.insert().values(**dataclasses.asdict(row)))
            change = Change("tokens.create", row.id, owner.project, after=row.facts)
            await record_change(connection, author, change, row.created_at)

    async def tokens(self, subject: str | None = None) -> list[TokenRow]:
        """Return the tokens of a subject, or all, the newest first."""
        async with self._database.read() as connection:
            return await _tokens(connection, subject)

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

    async def external(self, subject: str, names: list[str]) -> tuple[IdentityRow | None, list[MemberRow]]:
        """Return the row of an identity of another system, if it has one, and its memberships, as one snapshot.

        Args:
            names: names under which it may be a member: its own, and those of its groups.
        """
        async with self._database.read_snapshot() as connection:
            try:
                row: IdentityRow | None = await _find_identity(connection, subject)
            except NotFoundError:
                row = None
            return row, await _memberships(connection, names)

    async def revoke_token(self, token_id: str, now: float, *, author: Author = CONTROLLER) -> TokenRow:
        """Revoke a token, and end its sessions. Without effect if it is revoked. Raises NotFoundError."""
        live = sa.and_(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        async with self._database.write() as connection:
            before = await _find_token(connection, token_id)
            await connection.execute(tokens.update().where(live).values(revoked_at=now))
            await connection.execute(sessions.delete().where(sessions.c.token_id == token_id))
            after = await _find_token(connection, token_id)
            project = (await _find_identity(connection, after.subject)).project
            change = Change("tokens.revoke", token_id, project, before.facts, after.facts)
            await record_change(connection, author, change, now)
            return after

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


async def _find_member(connection: AsyncConnection, same: sa.ColumnElement[bool]) -> dict[str, Any] | None:
    """Return a membership as an audit record shows it."""
    row = (await connection.execute(sa.select(members).where(same))).mappings().one_or_none()
    return None if row is None else _member(row).facts


async def _tokens(connection: AsyncConnection, subject: str | None) -> list[TokenRow]:
    query = sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.id)
    if subject is not None:
        query = query.where(tokens.c.subject == subject)
    return [_token(row) for row in (await connection.execute(query)).mappings()]


async def _memberships(connection: AsyncConnection, subjects: list[str]) -> list[MemberRow]:
    query = sa.select(members).where(members.c.subject.in_(subjects)).order_by(members.c.project, members.c.subject)
    return [_member(row) for row in (await connection.execute(query)).mappings()]


def _identity(row: Mapping[Any, Any]) -> IdentityRow:
    values: dict[str, Any] = {**row, "kind": IdentityKind(row["kind"]), "permissions": frozenset(row["permissions"])}
    return IdentityRow(**values)


def _member(row: Mapping[Any, Any]) -> MemberRow:
    membership = Membership(Role(row["role"]), frozenset(row["permissions"]))
    return MemberRow(row["project"], row["subject"], membership, row["created_at"], row["created_by"])


def _token(row: Mapping[Any, Any]) -> TokenRow:
    values: dict[str, Any] = {**row, "role": None if row["role"] is None else Role(row["role"])}
    return TokenRow(**values)
