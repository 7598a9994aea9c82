"""Stores of tests. Migrations run once in each test process, and each SQLite store begins with a copy of the result.

The migrations of a new database take 0.1 s, a copy 0.02 s. Tests of migrations call `Store.open` themselves.
"""

import tempfile
from pathlib import Path

from sqlalchemy.engine import make_url

from regroup.service.store.store import Store

_migrated: list[bytes] = []
"""Content of an empty SQLite database with the newest schema, once it is known."""


async def open_store(url: str) -> Store:
    """Open a store. If it is a SQLite file that does not exist, it begins as a copy of an empty database."""
    address = make_url(url)
    if address.get_backend_name() == "sqlite" and not (file := Path(str(address.database))).exists():
        _create(file, await _empty_database())
    return await Store.open(url)


def _create(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(content)


async def _empty_database() -> bytes:
    if not _migrated:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "regroup.db"
            await (await Store.open(f"sqlite:///{file}")).close()
            assert not file.with_name("regroup.db-wal").exists(), "the file has the whole database"
            _migrated.append(file.read_bytes())
    return _migrated[0]
