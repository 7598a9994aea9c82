"""Node events are stored once, outlive jobs and are deleted when they are old; drain requests can be renewed."""

import pytest

from regroup.service.domain.errors import PreconditionError
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.store.rows.records import DrainRow, Lease
from regroup.service.store.store import Store


def loss(at_s: float, key: str = "", message: str = "") -> NodeEvent:
    return NodeEvent("local-1", NodeEventKind.NODE_LOST, at_s, key or f"lost:{at_s}", "job", "", message)


async def test_a_fault_that_is_reported_twice_is_stored_once(store: Store, lease: Lease) -> None:
    first = loss(10.0, "incident:1", "gone\x00")
    await store.nodes.record_faults(lease, [first, first], forget_before_s=0.0)
    await store.nodes.record_faults(lease, [first, loss(20.0)], forget_before_s=0.0)
    stored = await store.nodes.events()
    assert [(event.key, event.time_s) for event in stored] == [("incident:1", 10.0), ("lost:20.0", 20.0)]
    assert (stored[0].node, stored[0].kind, stored[0].job_id) == ("local-1", NodeEventKind.NODE_LOST, "job")


async def test_old_faults_are_deleted_but_orders_remain(store: Store, lease: Lease) -> None:
    order = NodeEvent("local-1", NodeEventKind.CORDONED, 5.0, "cordoned:1", actor="ann", message="disk")
    await store.nodes.record_order(order)
    await store.nodes.record_faults(lease, [loss(10.0)], forget_before_s=0.0)
    await store.nodes.record_faults(lease, [loss(30.0)], forget_before_s=20.0)
    assert [event.time_s for event in await store.nodes.events()] == [5.0, 30.0]
    assert (await store.nodes.events())[0] == order


async def test_a_former_leader_cannot_store_faults(store: Store, lease: Lease) -> None:
    await store.acquire_lease("controller-a", 30.0)
    with pytest.raises(PreconditionError):
        await store.nodes.record_faults(lease, [loss(1.0)], forget_before_s=0.0)
    assert await store.nodes.events() == []


async def test_faults_and_orders_wake_waiting_clients(store: Store, lease: Lease) -> None:
    for write in (
        lambda: store.nodes.record_faults(lease, [loss(1.0)], forget_before_s=0.0),
        lambda: store.nodes.record_order(NodeEvent("b", NodeEventKind.UNCORDONED, 5.0, "uncordoned:1", actor="ann")),
    ):
        mark = store.changes.mark()
        await write()
        assert store.changes.mark() > mark


async def test_a_shortage_on_a_node_is_a_condition_of_its_job_while_it_lasts(
    store: Store, lease: Lease, queue, walk, emitter
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)

    async def report(key: str, node: str, what: str, message: str) -> list[tuple[str, str]]:
        note = {"kind": "condition", "node": node, "what": what, "message": message}
        await store.ingest(lease, job_id, emitter.boot_id, [emitter.report("note", key, **note)], {})
        conditions = (await store.job(job_id)).conditions
        assert {(each.type, each.status) for each in conditions} <= {("NodeWell", False)}
        return [(each.reason, each.message) for each in conditions]

    disk = ("disk", "node local-1: 3 MiB are free for /tmp")
    assert await report("1", "local-1", "disk", "3 MiB are free for /tmp") == [disk]
    both = [disk, ("memory", "node local-12: 90 MiB are free")]
    assert await report("2", "local-12", "memory", "90 MiB are free") == both
    assert await report("3", "local-1", "disk", "") == both[1:]
    assert await report("4", "local-1", "disk", "3 MiB are free for /tmp") == both[::-1]
    replaced = {"lost": ["local-1"], "taken": ["local-3"]}
    await store.reallocate(lease, job_id, history=replaced, now=2000.0)
    assert [each.reason for each in (await store.job(job_id)).conditions] == ["memory"]
    assert [event.type for event in await store.events(job_id)][-5:] == ["note"] * 4 + ["nodes"]


async def test_a_drain_is_stored_renewed_and_cancelled(store: Store):
    first = DrainRow("n1", "local-1", "disks", "ada", 10.0, 70.0)
    other = DrainRow("n2", "local-2", "disks", "ada", 11.0, 71.0)
    assert await store.nodes.request_drain(first) == first
    await store.nodes.request_drain(other)
    renewed = await store.nodes.request_drain(DrainRow("n1", "local-1", "fans", "bob", 20.0, 40.0))
    assert renewed == DrainRow("n1", "local-1", "fans", "bob", 10.0, 40.0), (
        "the time of the first request does not change"
    )
    assert await store.nodes.drains() == [renewed, other]
    assert await store.nodes.delete_drains(["n1", "n3"]) == 1
    assert await store.nodes.drains() == [other]


async def test_ranks_that_got_sigterm_are_a_condition_of_their_job_until_they_have_ended(
    store: Store, lease: Lease, queue, walk, emitter
) -> None:
    job_id = await queue()
    await walk(job_id, emitter)

    async def report(key: str, message: str, *, is_over: bool) -> list[tuple[str, str]]:
        note = {"kind": "terminating", "message": message, "is_over": is_over}
        await store.ingest(lease, job_id, emitter.boot_id, [emitter.report("note", key, **note)], {})
        return [(each.type, each.message) for each in (await store.job(job_id)).conditions]

    assert await report("1", "they have 30 s", is_over=False) == [("Terminating", "they have 30 s")]
    assert await report("2", "all ended", is_over=True) == []
    await report("3", "they have 9 s", is_over=False)
    draining = {"state": "DRAINING", "reason": "cancelled_by_user", "message": "", "error": None}
    await store.ingest(lease, job_id, emitter.boot_id, [emitter.report("state", "4", **draining)], {})
    assert (await store.job(job_id)).conditions == ()
