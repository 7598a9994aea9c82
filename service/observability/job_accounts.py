"""Accounts of the jobs that are not in the stored sums, retained between scrapes: a scrape reads only what changed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import structlog

from regroup.service.cluster_state.account_reads import catch_up_all
from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.observability.job_totals import totals_of
from regroup.service.store.rows.records import JobRow
from regroup.service.store.rows.sums import SampleKey, Sums
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


class JobAccounts:
    """The accounts of jobs that have not ended, or have ended a moment ago."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, JobAccount] = {}
        self._idle: dict[str, tuple[int, Sums]] = {}
        """Job without devices → revision of its row, and what it adds to the sums, which time does not change."""

    @property
    def jobs(self) -> Mapping[str, JobRow]:
        """The rows of the jobs at the last scrape, by id."""
        return {job_id: account.job for job_id, account in self._accounts.items()}

    async def catch_up(self, jobs: Sequence[JobRow]) -> list[JobAccount]:
        """Return the accounts of these jobs, with all their events. Those of other jobs are forgotten."""
        retained = self._accounts
        self._idle = {job.id: self._idle[job.id] for job in jobs if job.id in self._idle}
        self._accounts = {job.id: retained.get(job.id) or JobAccount(job) for job in jobs}
        await catch_up_all(self._store, [(self._accounts[job.id], job) for job in jobs])
        return list(self._accounts.values())

    def sums(self, now: float) -> Mapping[SampleKey, float]:
        """Return what the jobs add to the sums until `now`."""
        sums = defaultdict[SampleKey, float](float)
        for account in self._accounts.values():
            try:
                for key, value in self._totals_of(account, now).items():
                    sums[key] += value
            except Exception as error:  # of one job: the metrics of all others are right
                _log.error("a job is missing in the metrics", job=account.job.id, exc_info=error)
        return sums

    def _totals_of(self, account: JobAccount, now: float) -> Sums:
        job = account.job
        revision, sums = self._idle.get(job.id, (None, {}))
        if revision == job.revision:
            return sums
        sums = totals_of(account, now)
        if account.is_idle:
            self._idle[job.id] = job.revision, sums
        else:
            self._idle.pop(job.id, None)
        return sums
