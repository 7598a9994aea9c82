"""The ledger of a job: the proof that every committed step saw its samples once, folded over the rows of its steps."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from regroup.service.domain.layout import Layout
from regroup.service.store.jobs.generation_progress import PROGRESS
from regroup.service.store.rows.records import Generation, JobRow, Ledger
from regroup.service.store.schema.json_values import CorruptJson
from regroup.service.store.schema.tables import ledgers, steps

_PAGE = 5000
_SHOWN = 20
"""Number of problems of one kind that are listed one by one."""
LedgerRow = tuple[int, int, int | None, int | None]
"""Step, generation, samples, and hash of the samples."""


async def stored_ledger(connection: AsyncConnection, job_id: str) -> Ledger | None:
    """Return the ledger of a job whose steps were removed; None if it was not stored."""
    data = (await connection.execute(sa.select(ledgers.c.data).where(ledgers.c.job_id == job_id))).scalar_one_or_none()
    if data is None or isinstance(data, CorruptJson):
        return None
    values = {name: value for name, value in data.items() if name != PROGRESS}
    fields: dict[str, Any] = {**values, "samples_hash": int(data["samples_hash"]), "problems": tuple(data["problems"])}
    return Ledger(**fields)


async def rows_after(connection: AsyncConnection, job_id: str, after: tuple[int, int]) -> list[LedgerRow]:
    """Return the next rows after a step and generation, sorted by step and generation."""
    columns = (steps.c.step, steps.c.generation, steps.c.samples, steps.c.samples_hash)
    place = sa.tuple_(steps.c.step, steps.c.generation)
    query = sa.select(*columns).where(steps.c.job_id == job_id, place > after)
    rows = await connection.execute(query.order_by(steps.c.step, steps.c.generation).limit(_PAGE))
    return [(step, generation, samples, hashed) for step, generation, samples, hashed in rows]


async def ledger_of(connection: AsyncConnection, job: JobRow, formed: Sequence[Generation]) -> Ledger:
    """Return the ledger of a job, folded over its rows, or as it was stored before they were removed."""
    if (stored := await stored_ledger(connection, job.id)) is not None:
        return stored
    spec = job.parsed_spec()
    samples = {found.number: spec.samples_per_step(Layout(**found.layout)) for found in formed}
    fold, after = LedgerFold(formed, samples, job.step), (-1, -1)
    while rows := await rows_after(connection, job.id, after):
        fold.add(rows)
        after = rows[-1][:2]
    return fold.result()


class LedgerFold:
    """Folds the rows of a job in pages, in constant memory.

    Args:
        formed: generations of the job. It starts at the start step of the first one (`resume_from`).
        samples: generation → required number of samples per step; None for a script, which reports no samples.
        committed: number of committed steps that the job reports.
    """

    def __init__(self, formed: Sequence[Generation], samples: Mapping[int, int | None], committed: int) -> None:
        ordered = sorted(formed, key=lambda each: each.number)
        self._numbers = [each.number for each in ordered]
        self._least_starts = list(accumulate((each.start_step for each in reversed(ordered)), min))[::-1]
        """Least start step of each generation and all later ones."""
        self._began_at = ordered[0].start_step if ordered else 0
        self._samples, self._committed = samples, committed
        self._twice, self._outside, self._wrong = _Problems(), _Problems(), _Problems()
        self._missing, self._first_missing = 0, 0
        self._last: tuple[int, int] | None = None
        """Step and generation of the last counted row."""
        self._next = self._began_at + 1
        self._steps = self._sample_count = self._hash = self._superseded = 0

    def add(self, rows: Sequence[LedgerRow]) -> None:
        """Add rows, sorted by step and generation."""
        for step, generation, samples, hashed in rows:
            if self._is_superseded(step, generation):
                self._superseded += 1
            elif self._last is not None and step == self._last[0]:
                self._twice.add(f"step {step} counts twice: in generations {self._last[1]} and {generation}")
            else:
                self._count(step, generation, samples, hashed)

    def result(self) -> Ledger:
        """Return the ledger of all added rows."""
        self._skip_to(self._committed + 1)
        problems = self._twice.listed()
        if self._missing:
            problems.append(f"{self._missing} committed steps have no row; the first is {self._first_missing}")
        if self._outside.count:
            within = f"{self._began_at + 1}..{self._committed}"
            problems.append(f"{self._outside.count} rows are outside steps {within}, e.g. {self._outside.first[0]}")
        if None in self._samples.values():
            problems.append("a script does not report the samples of its steps")
        problems += self._wrong.listed()
        return Ledger(
            exact=not problems,
            steps=self._steps,
            samples=self._sample_count,
            samples_hash=self._hash,
            superseded=self._superseded,
            problems=tuple(problems),
        )

    def _is_superseded(self, step: int, generation: int) -> bool:
        """Return whether a later generation started before this step."""
        later = bisect_right(self._numbers, generation)
        return later < len(self._numbers) and self._least_starts[later] < step

    def _count(self, step: int, generation: int, samples: int | None, hashed: int | None) -> None:
        self._last = (step, generation)
        self._steps += 1
        self._sample_count += samples or 0
        self._hash = (self._hash + (hashed or 0)) % 2**64
        if step > self._committed or step <= self._began_at:
            self._outside.add(str(step))
        else:
            self._skip_to(step)
            self._next = step + 1
        expected = self._samples.get(generation)
        if expected is not None and samples != expected:
            self._wrong.add(f"step {step} used {samples} samples, expected {expected}")

    def _skip_to(self, step: int) -> None:
        """Note the committed steps before `step` that have no row."""
        if step > self._next:
            self._first_missing = self._first_missing or self._next
            self._missing += step - self._next


class _Problems:
    """Problems of one kind. Only the first are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, problem: str) -> None:
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(problem)

    def listed(self) -> list[str]:
        more = self.count - len(self.first)
        return [*self.first, f"{more} more problems of this kind"] if more else list(self.first)
