"""The statements that a store sends to its database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from regroup.service.store.store import Store


@contextmanager
def recorded_statements(store: Store) -> Iterator[list[str]]:
    """Collect the statements of the block: one for each execution, also with several rows. `BEGIN` is left out."""
    database, found = store._database, list[str]()
    engines = {database._reader.sync_engine, database._writer.sync_engine}

    def note(*arguments: Any) -> None:
        if not (statement := str(arguments[2])).startswith("BEGIN"):
            found.append(statement)

    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)
