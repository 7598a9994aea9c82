"""The database's clock in SQL: the only clock that all control planes share."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class DatabaseClock(FunctionElement[float]):
    """The present time in Unix seconds."""

    name = "database_clock"
    type = sa.Double()
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def compile_for_sqlite(element: DatabaseClock, compiler: Any, **options: Any) -> str:
    """Return the expression for SQLite."""
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseClock, "postgresql")
def compile_for_postgresql(element: DatabaseClock, compiler: Any, **options: Any) -> str:
    """Return the expression for PostgreSQL: the time of the call, not of the start of the transaction."""
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
