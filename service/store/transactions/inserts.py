"""Inserts that another server may have made first."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def insert_if_absent(dialect: str, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert, in a dialect of SQL, that does nothing if a unique index has its values.

    After an error, PostgreSQL would refuse the rest of the transaction, and a savepoint costs two more statements.
    """
    insert: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()


async def add_if_absent(connection: AsyncConnection, table: sa.Table, **values: Any) -> bool:
    """Insert a row; return False if a unique index has its values."""
    return bool((await connection.execute(insert_if_absent(connection.dialect.name, table).values(**values))).rowcount)
