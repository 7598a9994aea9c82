"""Notices of changes, and what a reader that has a newer row need not read again."""

import asyncio

from regroup.service.store.transactions import change_notifier
from regroup.service.store.transactions.change_notifier import Changes


def test_a_reader_with_the_announced_revision_has_missed_nothing():
    changes, mark = Changes(), 0
    changes.announce("j", 7)
    assert changes.has_changed("j", mark) and changes.revision("j") == 7
    assert changes.has_changed("j", mark, 6) and not changes.has_changed("j", mark, 7)
    changes.announce("j", 5)
    assert not changes.has_changed("j", mark, 7) and changes.has_changed("j", mark, 6), "notices may come out of order"
    mark = changes.mark()
    changes.announce("j")
    assert changes.has_changed("j", mark, 7), "the revision of this change is unknown"
    assert not changes.has_changed("other", mark, 1) and changes.revision("other") == 0


async def test_progress_wakes_the_followers_of_its_job_only():
    changes = Changes()
    mark = changes.mark()
    follower = asyncio.create_task(changes.wait("j", mark, 30.0))
    anyone = asyncio.create_task(changes.wait_any(mark, 30.0))
    await asyncio.sleep(0)
    changes.announce("j", 2, is_progress=True)
    await asyncio.wait_for(follower, 5.0)
    await asyncio.sleep(0)
    assert not anyone.done()
    changes.announce("j", 3)
    await asyncio.wait_for(anyone, 5.0)
    await asyncio.wait_for(changes.wait_any(mark, 30.0), 5.0)


def test_a_forgotten_job_may_have_changed(monkeypatch):
    monkeypatch.setattr(change_notifier, "_REMEMBERED", 1)
    changes = Changes()
    mark = changes.mark()
    changes.announce("first", 2)
    changes.announce("second", 2)
    assert changes.has_changed("first", mark, 2) and not changes.has_changed("first", changes.mark(), 2)
