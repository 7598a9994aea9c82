"""The reports of supervisors: those of several jobs in one transaction. Each job's state and events stay together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from sqlalchemy import exc

from regroup.service.domain.errors import NotFoundError, PreconditionError, UnavailableError
from regroup.service.store.job_transactions import JobTransactions
from regroup.service.store.jobs.ingest import Report, ingest
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.transactions.groups import Groups

_MOST_JOBS = 64
_MOST_EVENTS = 4000
"""Events of a group of several jobs: those after them wait for the next group, so that no transaction takes long."""


@dataclass(frozen=True)
class _JobReport:
    lease: Lease
    job_id: str
    report: Report


class ReportGroups:
    """Ingests reports. Those that arrive during a transaction share the next one."""

    def __init__(self, transactions: JobTransactions) -> None:
        self._transactions = transactions
        self._rows = WeakValueDictionary[str, JobRow]()
        """Job → its row after its last report, while its caller keeps it: usually it is the same until the next."""
        self._groups = Groups[_JobReport, JobRow](
            self._write_group, _MOST_JOBS, lambda each: len(each.report.events) + len(each.report.steps), _MOST_EVENTS
        )

    async def ingest(self, lease: Lease, job_id: str, report: Report, delay_s: float = 0.0) -> JobRow:
        """Ingest a report; return the job's row.

        Args:
            delay_s: longest time to wait for reports of other jobs.

        Raises:
            NotFoundError: there is no such job.
            PreconditionError: another control plane has the lease.
        """
        return await self._groups.add(_JobReport(lease, job_id, report), delay_s)

    async def finish(self) -> None:
        """Wait until all reports are stored."""
        await self._groups.finish()

    async def _write_group(self, group: Sequence[_JobReport]) -> Sequence[JobRow | Exception]:
        found = dict[int, JobRow | Exception]()
        for turn in _turns(group):
            for place, outcome in zip(turn, await self._write([group[place] for place in turn]), strict=True):
                found[place] = outcome
        return [found[place] for place in range(len(group))]

    async def _write(self, reports: Sequence[_JobReport]) -> Sequence[JobRow | Exception]:
        """Ingest reports of different jobs; after an error each for itself, so that one job affects no other."""
        try:
            return await self._transact(reports, is_thorough=False)
        except (PreconditionError, UnavailableError) as error:
            return [error] * len(reports)
        except Exception as error:
            if len(reports) == 1 and not isinstance(error, exc.IntegrityError):
                return [error]
            return [await self._write_alone(each) for each in reports]

    async def _write_alone(self, each: _JobReport) -> JobRow | Exception:
        try:
            (found,) = await self._transact([each], is_thorough=True)
        except Exception as error:
            return error
        return found

    async def _transact(self, reports: Sequence[_JobReport], *, is_thorough: bool) -> list[JobRow | Exception]:
        job_ids = [each.job_id for each in reports]
        kept = {job_id: row for job_id in job_ids if (row := self._rows.get(job_id)) is not None}
        async with self._transactions.open_all(job_ids, reports[0].lease, kept) as writers:
            present = [(writers[each.job_id], each.report) for each in reports if each.job_id in writers]
            if present:
                await ingest(present[0][0].connection, present, is_thorough=is_thorough)
        self._rows.update({job_id: writer.job for job_id, writer in writers.items()})
        return [
            writers[each.job_id].job if each.job_id in writers else NotFoundError(f"no job {each.job_id!r}")
            for each in reports
        ]


def _turns(group: Sequence[_JobReport]) -> Iterable[Sequence[int]]:
    """Return the places of reports that may share a transaction: those of one lease, each of another job."""
    turns, seen = defaultdict[tuple[Lease, int], list[int]](list), defaultdict[tuple[Lease, str], int](int)
    for place, each in enumerate(group):
        of_job = each.lease, each.job_id
        turns[each.lease, seen[of_job]].append(place)
        seen[of_job] += 1
    return turns.values()
