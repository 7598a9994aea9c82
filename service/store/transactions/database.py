"""Engines, transactions and migrations for the two dialects.

SQLite: a file in WAL mode, used by one process (a lock file next to it ensures that). One connection writes, and all
its transactions begin IMMEDIATE. The other connections cannot write, so no transaction ever needs an upgrade.
PostgreSQL: asyncpg, READ COMMITTED. Writers lock the rows that they decide on.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from regroup.service.domain.errors import ConflictError, DamagedDatabaseError, SettingError, UnavailableError
from regroup.service.store.schema.clock import DatabaseClock
from regroup.service.store.transactions.connection_share import ConnectionShare
from regroup.service.store.transactions.write_conditions import current_conditions

_MIGRATIONS = Path(__file__).parent.parent / "schema" / "migrations"
_MIGRATION_LOCK = 0x7265_6772  # PostgreSQL advisory lock: replicas that start together migrate one after the other
_MIGRATION_POLL_S = 0.2
_BUSY_TIMEOUT_MS = 10_000
_AWAY_STATES = ("08", "25P03", "53", "55P03", "57")
"""SQLSTATE classes and codes: connection, idle transaction, resources, lock timeout, shutdown or cancellation."""
_DAMAGED_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_STATES = ("XX001", "XX002")
"""SQLSTATE codes of PostgreSQL: corrupted data, corrupted index."""
_REPORT_DAMAGE_EVERY_S = 60.0
_LAST_USE = "regroup_last_use_s"
_TRUSTED_S = 1.0
"""Time for which a connection that has just worked is used without a test."""
ANSWER_TIMEOUT_S = 10.0
"""Timeout of a statement and of a connection attempt. A PostgreSQL that exceeds it counts as unavailable."""
_log = structlog.get_logger(__name__)


class Database:
    """Read and write transactions on one database."""

    def __init__(self, reader: AsyncEngine, writer: AsyncEngine, lock_fd: int | None, file: Path | None = None) -> None:
        self._reader = reader
        self._writer = writer
        self._lock_fd = lock_fd
        self._file = file
        self._file_id: tuple[int, int] | None = None
        """Device and inode of the SQLite file that this process has open."""
        self._damage_reported_s = -float("inf")
        self._share = ConnectionShare()

    @classmethod
    async def open(cls, url: str) -> "Database":
        """Connect and migrate to the newest schema.

        Args:
            url: `sqlite:///path/to/file` or `postgresql://user:password@host/database`.

        Raises:
            ConflictError: another process has locked this SQLite file.
            SettingError: the URL is not supported.
            UnavailableError: the database does not answer.
        """
        address = _async_url(url)
        if address.get_backend_name() == "sqlite":
            file = Path(address.database or "")
            if not address.database or address.database == ":memory:":
                raise SettingError(f"database {url!r}: SQLite needs a file, e.g. sqlite:////var/lib/regroup/regroup.db")
            lock_fd = await asyncio.to_thread(_lock_file, file)
            writer = create_async_engine(address, pool_size=1, max_overflow=0, pool_timeout=60)
            reader = create_async_engine(address)
            _prepare_sqlite(writer, begin="BEGIN IMMEDIATE", query_only=False)
            _prepare_sqlite(reader, begin="BEGIN", query_only=True)
        else:
            lock_fd = file = None
            reader = writer = create_async_engine(
                address,
                pool_size=10,
                max_overflow=10,
                pool_timeout=ANSWER_TIMEOUT_S,
                connect_args=_patience(ANSWER_TIMEOUT_S),
            )
            _check_idle_connections(writer)
        database = cls(reader, writer, lock_fd, file)
        try:
            async with database.write() as connection:
                if not database.single_process:
                    await _lock_migrations(connection)
                await connection.run_sync(_migrate)
            database._file_id = None if file is None else _file_id(file)
        except BaseException:
            await database.close()
            raise
        return database

    @property
    def single_process(self) -> bool:
        """True if no other process can open this database (SQLite)."""
        return self._lock_fd is not None

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncConnection]:
        """Open a transaction that commits when the block ends without an exception, or never in a dry run."""
        self._check_file()
        conditions = current_conditions()
        if conditions is not None and conditions.dry_run:
            async with self._unavailable_if_down(), conditions.trial(self._writer) as connection:
                yield connection
            return
        async with self._unavailable_if_down(), self._writer.begin() as connection:
            if conditions is not None:
                await conditions.begin(connection)
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncConnection]:
        """Open a read transaction. On SQLite it reads one snapshot. A dry run reads its own changes."""
        conditions = current_conditions()
        if conditions is not None and conditions.has_trial:
            async with self._unavailable_if_down(), conditions.trial_read() as connection:
                yield connection
            return
        async with self._unavailable_if_down(), self._reader.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read_snapshot(self) -> AsyncGenerator[AsyncConnection]:
        """Open a read transaction in which all statements read one snapshot, on PostgreSQL, too."""
        conditions = current_conditions()
        if conditions is not None and conditions.has_trial:
            async with self.read() as connection:
                yield connection
            return
        async with self._unavailable_if_down(), self._reader.connect() as connection:
            if not self.single_process:
                await connection.execution_options(isolation_level="REPEATABLE READ")
            async with connection.begin():
                yield connection

    async def now(self, connection: AsyncConnection) -> float:
        """Return the time of the database's clock, Unix seconds. It is the only clock that all control planes share."""
        return float((await connection.execute(sa.select(DatabaseClock()))).scalar_one())

    async def ping(self) -> None:
        """Check that the database answers; raise UnavailableError if it does not."""
        self._check_file()
        async with self.read() as connection:
            await connection.execute(sa.select(1))

    async def close(self) -> None:
        """Close the connections and release the file lock."""
        await self._reader.dispose()
        await self._writer.dispose()
        if self._lock_fd is not None:
            os.close(self._lock_fd)

    @asynccontextmanager
    async def _unavailable_if_down(self) -> AsyncGenerator[None]:
        try:
            async with self._share.turn():
                yield
        except (exc.DBAPIError, exc.TimeoutError, OSError) as error:
            if isinstance(error, exc.DBAPIError) and _is_damaged(error):
                self._report_damage(error)
                raise DamagedDatabaseError(
                    f"the database is damaged ({error.orig}); stop the server and restore the database from a backup"
                ) from error
            if isinstance(error, exc.DBAPIError) and not _is_down(error):
                raise
            cause = getattr(error, "orig", None) or error
            if isinstance(cause, TimeoutError):  # the timeout may have hit the commit
                outcome = "the change may have been made: check, then try again"
                raise UnavailableError(f"the database did not answer in {ANSWER_TIMEOUT_S:g} s; {outcome}") from error
            raise UnavailableError(f"the database does not answer ({cause}); nothing was changed, try again") from error

    def _report_damage(self, error: exc.DBAPIError) -> None:
        """Log the damage, once a minute: every request and every pass meets it."""
        if time.monotonic() - self._damage_reported_s >= _REPORT_DAMAGE_EVERY_S:
            self._damage_reported_s = time.monotonic()
            _log.error("the database is damaged; restore it from a backup", error=str(error.orig), file=self._file)

    def _check_file(self) -> None:
        """Check that the SQLite file in use is still the one at its path.

        SQLite itself continues to write to a file that was deleted, and all of it is lost when the process ends.
        """
        if self._file is not None and self._file_id is not None and _file_id(self._file) != self._file_id:
            raise DamagedDatabaseError(
                f"the database file {self._file} was deleted or replaced while the server uses it; nothing was "
                "changed; stop the server, put the file back, and start the server again"
            )


def _file_id(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_damaged(error: exc.DBAPIError) -> bool:
    code = getattr(error.orig, "sqlite_errorcode", None)
    is_sqlite = isinstance(code, int) and code & 0xFF in _DAMAGED_CODES  # the lowest byte is the primary code
    return is_sqlite or str(getattr(error.orig, "sqlstate", "")) in _DAMAGED_STATES


def _is_down(error: exc.DBAPIError) -> bool:
    is_broken = isinstance(error, exc.OperationalError | exc.InterfaceError) or error.connection_invalidated
    return is_broken or str(getattr(error.orig, "sqlstate", "")).startswith(_AWAY_STATES)


def _patience(timeout_s: float) -> dict[str, Any]:
    """Return connection options with timeouts.

    With them, no client waits forever for a server that stopped responding, and no server retains the locks of such a
    client.
    """
    return {
        "timeout": timeout_s,
        "command_timeout": timeout_s,
        "server_settings": {
            "lock_timeout": f"{timeout_s * 900:.0f}ms",
            "idle_in_transaction_session_timeout": f"{timeout_s * 2000:.0f}ms",
        },
    }


def _check_idle_connections(engine: AsyncEngine) -> None:
    """Let the pool test a connection that was idle for a while before it is used again, and replace broken ones.

    The pool's own test, `pool_pre_ping`, precedes every use, and takes three messages and their answers.
    """

    def note_use(_: object, record: ConnectionPoolEntry) -> None:
        record.info[_LAST_USE] = time.monotonic()

    def test(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        if time.monotonic() - record.info.get(_LAST_USE, float("inf")) < _TRUSTED_S:
            return
        try:
            connection.ping()
        except Exception as error:
            raise exc.InvalidatePoolError from error

    event.listen(engine.sync_engine, "checkin", note_use)  # codespell:ignore checkin
    event.listen(engine.sync_engine, "checkout", test)


async def _lock_migrations(connection: AsyncConnection) -> None:
    """Wait while another replica migrates. A migration may take longer than the timeout of a statement."""
    lock = sa.select(sa.func.pg_try_advisory_xact_lock(_MIGRATION_LOCK))
    while not (await connection.execute(lock)).scalar_one():  # noqa: ASYNC110  (another process holds it)
        await asyncio.sleep(_MIGRATION_POLL_S)


def _async_url(url: str) -> sa.URL:
    try:
        address = sa.make_url(url)
    except exc.ArgumentError as error:
        raise SettingError(f"database {url!r} is not a URL; use sqlite:///FILE or postgresql://HOST/NAME") from error
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
    backend = address.drivername.partition("+")[0]
    if backend not in drivers:
        raise SettingError(f"database {backend!r} is not supported; use sqlite:///FILE or postgresql://HOST/NAME")
    return address.set(drivername=drivers[backend])


def _lock_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        raise ConflictError(
            f"another process has locked {path}, and SQLite serves one control plane; "
            "stop that process, or use PostgreSQL"
        ) from None
    return lock_fd


def _prepare_sqlite(engine: AsyncEngine, begin: str, query_only: bool) -> None:
    def connect(dbapi_connection: Any, _: object) -> None:
        dbapi_connection.isolation_level = None  # the driver must not begin transactions of its own
        cursor = dbapi_connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # events acknowledged to a supervisor survive a power failure
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA query_only={'ON' if query_only else 'OFF'}")
        cursor.close()
        # Damaged text becomes a value that is visibly wrong. The default is an error for all rows of the query.
        dbapi_connection.driver_connection.text_factory = _decode_text

    def start(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    def roll_back(driver: Any) -> Awaitable[None]:
        return asyncio.shield(driver.rollback())

    def abandon(dbapi_connection: Any, *_: object) -> None:
        # A cancelled call continues in the driver's thread. Without a rollback, its transaction and lock stay open as
        # long as a reference to the cursor exists, for example in a traceback.
        with suppress(ValueError, sqlite3.Error):  # the connection is already closed
            dbapi_connection.run_async(roll_back)

    event.listen(engine.sync_engine, "connect", connect)
    event.listen(engine.sync_engine, "invalidate", abandon)
    event.listen(engine.sync_engine, "begin", start)


def _decode_text(value: bytes) -> str:
    return value.decode(errors="replace")


def _migrate(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
