"""Drain requests, on SQLite and on a real PostgreSQL."""

from regroup.service.store.records import DrainRow
from regroup.service.store.store import Store


async def test_a_drain_is_stored_renewed_and_cancelled(store: Store):
    first = DrainRow("n1", "local-1", "disks", "ada", 10.0, 70.0)
    other = DrainRow("n2", "local-2", "disks", "ada", 11.0, 71.0)
    assert await store.drain(first) == first
    await store.drain(other)
    renewed = await store.drain(DrainRow("n1", "local-1", "fans", "bob", 20.0, 40.0))
    assert renewed == DrainRow("n1", "local-1", "fans", "bob", 10.0, 40.0), (
        "the time of the first request does not change"
    )
    assert await store.drains() == [renewed, other]
    assert await store.undrain(["n1", "n3"]) == 1
    assert await store.drains() == [other]
