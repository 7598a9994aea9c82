"""Reads of many accounts at once: the events and the progress of several jobs take few statements."""

from collections.abc import Iterable, Iterator, Sequence

from regroup.service.cluster_state.job_account import JobAccount
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store
from regroup.service.store.transactions.groups import Groups

_SHORT_EVENTS = 100
"""Histories with at most this number of events are read together."""
_BATCH_EVENTS = 2000
_MOST = 100


async def catch_up_all(store: Store, found: Sequence[tuple[JobAccount, JobRow]]) -> None:
    """Read the events of each account up to the version of its job's row, and its progress."""
    by_id = {job.id: account for account, job in found}
    for account, job in found:
        account.job = job
    new = [account for account, job in found if not account.number and job.version <= _SHORT_EVENTS]
    for group in _groups(new):
        for event in await store.events_of_jobs([account.job.id for account in group]):
            by_id[event.job_id].try_to_record(event)
    for account, job in found:
        await account.read_events(store, job)
    unread = ((account.job.id, account.unread_progress) for account, _ in found)
    firsts = {job_id: first for job_id, first in unread if first is not None}
    for job_id, progress in (await store.progress_of_jobs(firsts)).items():
        by_id[job_id].record_progress(progress)


class AccountReader:
    """Reads the accounts of the jobs that a leader reconciles."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups = Groups[tuple[JobAccount, JobRow], None](self._catch_up, _MOST)

    async def catch_up(self, account: JobAccount, job: JobRow, delay_s: float) -> None:
        """Read the events of a job up to its row's version, and its progress.

        Args:
            delay_s: longest time to wait for the accounts of other jobs.
        """
        await self._groups.add((account, job), delay_s)

    async def _catch_up(self, group: Sequence[tuple[JobAccount, JobRow]]) -> Sequence[None]:
        await catch_up_all(self._store, group)
        return [None] * len(group)


def _groups(accounts: Iterable[JobAccount]) -> Iterator[Sequence[JobAccount]]:
    """Yield the accounts in groups with a limited number of events."""
    group, events = list[JobAccount](), 0
    for account in accounts:
        if group and events + account.job.version > _BATCH_EVENTS:
            yield group
            group, events = [], 0
        group.append(account)
        events += account.job.version
    if group:
        yield group
