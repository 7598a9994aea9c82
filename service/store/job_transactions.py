"""Transactions that write to one job."""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager

from regroup.service.domain.errors import NotFoundError
from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.live_jobs import LiveJobs
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.transactions import leases
from regroup.service.store.transactions.change_notifier import Changes
from regroup.service.store.transactions.database import Database


class JobTransactions:
    """Opens transactions, and announces what they changed after they have committed."""

    def __init__(self, database: Database, changes: Changes, live: LiveJobs) -> None:
        self._database, self._changes, self._live = database, changes, live

    @asynccontextmanager
    async def open(self, job_id: str, lease: Lease | None = None) -> AsyncGenerator[JobWriter]:
        """Lock the row of a job until the end of the block.

        Raises:
            NotFoundError: there is no such job.
            PreconditionError: another control plane has the lease.
        """
        async with self.open_all([job_id], lease) as writers:
            if job_id not in writers:
                raise NotFoundError(f"no job {job_id!r}")
            yield writers[job_id]

    @asynccontextmanager
    async def open_all(
        self, job_ids: Collection[str], lease: Lease | None = None, kept: Mapping[str, JobRow] | None = None
    ) -> AsyncGenerator[Mapping[str, JobWriter]]:
        """Lock the rows of several jobs until the end of the block. Ids without a job are left out.

        Args:
            kept: see `JobWriter.lock_all`.

        Raises:
            PreconditionError: another control plane has the lease.
        """
        writers, before = dict[str, JobWriter](), dict[str, JobRow]()
        try:
            async with self._database.write() as connection:
                if lease is not None:
                    await leases.check(connection, lease)
                writers = await JobWriter.lock_all(connection, job_ids, kept)
                before = {job_id: writer.job for job_id, writer in writers.items()}
                yield writers
        finally:
            for job_id, writer in writers.items():
                if writer.has_reallocated:  # also if the outcome of the commit is unknown
                    self._live.drop_allocations(job_id)
        for job_id, writer in writers.items():
            if writer.job.revision != before[job_id].revision:
                is_progress = writer.job.version == before[job_id].version
                self._changes.announce(job_id, writer.job.revision, is_progress=is_progress)
