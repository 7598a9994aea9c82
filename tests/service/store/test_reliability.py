"""Incidents and faults of all jobs on both databases: windows, projects, limits and sizes of generations."""

from typing import Any

import sqlalchemy as sa

from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.store.rows.records import Lease
from regroup.service.store.schema.tables import jobs
from regroup.service.store.store import Store


async def test_incidents_of_a_window_have_the_size_of_their_generation(
    store: Store, lease: Lease, queue: Any, walk: Any, emitter: Any
) -> None:
    job_id = await queue("one", project="vision")
    await walk(job_id, emitter)
    reports = [
        emitter.report("incident", f"incident:i{number}:1", id=f"i{number}", cause="c", times={}, generation=number)
        for number in (1, 2)
    ]
    await store.ingest(lease, job_id, emitter.boot_id, reports, {})
    newest, oldest = await store.reliability.incidents(0.0, 1e9, None, 10)
    assert [(each.number, each.time_s, each.devices) for each in (oldest, newest)] == [
        (1, reports[0].time_s, 1), (2, reports[1].time_s, None),
    ]  # fmt: skip
    assert (newest.job_id, newest.job_name, newest.project, newest.data["id"]) == (job_id, "one", "vision", "i2")
    assert await store.reliability.incidents(0.0, reports[1].time_s, None, 10) == [oldest]
    assert await store.reliability.incidents(reports[1].time_s, 1e9, None, 10) == [newest]
    assert await store.reliability.incidents(0.0, 1e9, frozenset({"vision"}), 1) == [newest]
    assert await store.reliability.incidents(0.0, 1e9, frozenset({"speech"}), 10) == []


async def test_only_known_goodputs_are_returned(store: Store, queue: Any) -> None:
    one, two = await queue("one"), await queue("two")
    async with store._database.write() as connection:
        await connection.execute(sa.update(jobs).where(jobs.c.id == one).values(goodput=0.75))
    assert await store.reliability.goodputs([two, one, "job_unknown"]) == {one: 0.75}
    assert await store.reliability.goodputs([]) == {}


async def test_faults_of_nodes_are_apart_from_orders(store: Store) -> None:
    for node, kind, time_s in (
        ("n1", NodeEventKind.NODE_LOST, 5.0), ("n2", NodeEventKind.LINK, 6.0), ("n1", NodeEventKind.CORDONED, 7.0),
    ):  # fmt: skip
        await store.nodes.record_order(NodeEvent(node, kind, time_s, f"{node}:{kind}", actor="ana"))
    faults = [("n2", "link", 6.0), ("n1", "node_lost", 5.0)]
    assert await store.reliability.node_faults(0.0, 10.0, 10) == faults
    assert await store.reliability.node_faults(0.0, 10.0, 1) == faults[:1]
    assert await store.reliability.node_faults(5.0, 6.0, 10) == faults[1:]
