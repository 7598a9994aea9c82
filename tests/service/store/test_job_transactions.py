"""Transactions of one job announce what they wrote, after it is stored."""

from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.store.rows.records import Condition, Lease
from regroup.service.store.store import Store

_AUTHOR = Author("someone")


async def test_only_changes_are_announced_with_their_revision(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue("one")
    await walk(job_id, emitter)
    row, mark = await store.job(job_id), store.changes.mark()
    await store.set_conditions(lease, job_id, row.conditions, now=1.0)
    assert not store.changes.has_changed(job_id, mark), "nothing was written"
    await store.set_conditions(lease, job_id, (Condition("Well", False, "no", "why"),), now=1.0)
    newer = await store.job(job_id)
    assert store.changes.revision(job_id) == newer.revision > row.revision
    assert store.changes.has_changed(job_id, mark, row.revision)
    assert not store.changes.has_changed(job_id, mark, newer.revision)


async def test_a_transaction_that_fails_announces_nothing(store: Store, queue: Any) -> None:
    job_id, mark = await queue("one"), store.changes.mark()

    def fail(_: Any) -> Any:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await store.intend(job_id, fail, now=1.0, author=_AUTHOR, action="jobs.test")
    assert not store.changes.has_changed(job_id, mark)
