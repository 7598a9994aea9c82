"""Transactions that write to one job."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from regroup.service.store.jobs.job_writer import JobWriter
from regroup.service.store.live_jobs import LiveJobs
from regroup.service.store.rows.records import Lease
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
        writer: JobWriter | None = None
        try:
            async with self._database.write() as connection:
                if lease is not None:
                    await leases.check(connection, lease)
                writer = await JobWriter.lock(connection, job_id)
                before = writer.job
                yield writer
        finally:
            if writer is not None and writer.has_reallocated:  # also if the outcome of the commit is unknown
                self._live.drop_allocations(job_id)
        assert writer is not None, "the transaction has committed"
        if writer.job.revision != before.revision:
            is_progress = writer.job.version == before.version
            self._changes.announce(job_id, writer.job.revision, is_progress=is_progress)
