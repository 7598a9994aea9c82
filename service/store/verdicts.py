"""Verdicts of chaos rehearsals: record one, and read the newest."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from regroup.service.domain.author import CONTROLLER, Author
from regroup.service.store.access.audit import Change, record_change
from regroup.service.store.rows.verdicts import Verdict, VerdictRow
from regroup.service.store.schema.json_values import CorruptJson, plain
from regroup.service.store.schema.verdict_tables import chaos_verdicts
from regroup.service.store.transactions.database import Database

MAX_VERDICTS = 1000
"""Number of verdicts that are kept: the newest ones."""
_OF_ROW = ("scenario", "passed")
_FACTS = ("scenario", "seed", "passed", "version")


class VerdictStore:
    """The part of `Store` for chaos rehearsals: `store.verdicts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, verdict: Verdict, *, now: float, author: Author = CONTROLLER) -> VerdictRow:
        """Store a verdict, and remove those that are older than the newest `MAX_VERDICTS`."""
        data = plain(asdict(verdict))
        row = {name: data.pop(name) for name in _OF_ROW}
        async with self._database.write() as connection:
            values = {**row, "data": data, "time_s": now, "recorded_by": author.name}
            made = await connection.execute(chaos_verdicts.insert().values(**values).returning(chaos_verdicts.c.id))
            number = int(made.scalar_one())
            await connection.execute(chaos_verdicts.delete().where(chaos_verdicts.c.id <= number - MAX_VERDICTS))
            after = {name: getattr(verdict, name) for name in _FACTS}
            await record_change(connection, author, Change("chaos.record", str(number), after=after), now)
        return VerdictRow(number, now, author.name, verdict)

    async def newest(self, scenario: str | None, limit: int) -> list[VerdictRow]:
        """Return up to `limit` verdicts, newest first; only those of one scenario if it is given."""
        query = sa.select(chaos_verdicts).order_by(chaos_verdicts.c.id.desc()).limit(limit)
        if scenario is not None:
            query = query.where(chaos_verdicts.c.scenario == scenario)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_row(row) for row in rows if not isinstance(row["data"], CorruptJson)]


def _row(row: Mapping[Any, Any]) -> VerdictRow:
    values = {**row["data"], **{name: row[name] for name in _OF_ROW}}
    verdict = Verdict(**{field.name: values[field.name] for field in fields(Verdict)})
    return VerdictRow(row["id"], row["time_s"], row["recorded_by"], verdict)
