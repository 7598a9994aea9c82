"""Nodes with the API and the client: free capacity and jobs, cordon and uncordon."""

import time
from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import MACHINE_LABEL
from regroup.service.local.api_token import user_name
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.ports.cluster import Node
from regroup.service.store.rows.records import Allocation, AllocationKind


def node(number: int, **fields: Any) -> Node:
    return Node(f"{number}" * 40, f"local-{number}", "10.0.0.1", cpus=4, free_cpus=4, gpus=2, free_gpus=2, **fields)


async def named(live: Any) -> dict[str, Any]:
    return {each.name: each for each in await live.client(lambda client: client.nodes())}


async def test_nodes_show_free_capacity_and_jobs(live: Any) -> None:
    live.cluster.add_node(Node("c" * 40, "control", "10.0.0.9", is_control=True))
    live.cluster.add_node(node(1))
    live.cluster.add_node(node(2, labels={MACHINE_LABEL: "rack-7/m2"}, is_draining=True))
    job = await live.submit()
    allocation = {"ranks": 3, "device_kind": "cpu", "cpus": 3, "memory_bytes": 0, "name": "local-1"}
    placed = check_transition(job["id"], JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    reservation = Allocation(
        job["id"], AllocationKind.RESERVATION, f"regroup-reservation:{job['id']}:1", "1" * 40, allocation
    )
    await live.store.apply(live.lease, placed, now=1.0, allocate=[reservation])
    first, second = (await named(live)).values()
    assert (first.name, first.cpus, first.free_cpus, first.free_gpus) == ("local-1", 4, 1, 2)
    assert [(here.name, here.ranks) for here in first.jobs] == [("gpt", 3)] and not first.is_draining
    assert (first.health.status, first.health.score, first.health.why, first.health.faults) == ("open", 0, "", [])
    assert (second.name, second.node_name, second.is_draining) == ("rack-7/m2", "local-2", True)


async def test_a_node_is_cordoned_and_uncordoned(live: Any) -> None:
    live.cluster.add_node(node(1))
    closed = await live.client(lambda client: client.cordon("local-1", reason="its fan"))
    assert (closed.health.status, closed.health.why) == ("cordoned", f"cordoned by {user_name()}: its fan")
    assert closed.health.cordoned_by == user_name() and closed.health.until_s is None
    assert (await named(live))["local-1"].health == closed.health
    opened = await live.client(lambda client: client.uncordon("1" * 40))
    assert (opened.name, opened.health.status, opened.health.why) == ("local-1", "open", "")
    orders = await live.store.nodes.events()
    assert [(order.kind, order.actor, order.message) for order in orders] == [
        ("cordoned", user_name(), "its fan"), ("uncordoned", user_name(), ""),
    ]  # fmt: skip


async def test_a_lost_node_keeps_its_faults_until_it_is_uncordoned(live: Any) -> None:
    now = time.time()
    for number in range(3):
        loss = NodeEvent("m1", NodeEventKind.NODE_LOST, now - 600 + 60 * number, f"{number}", "j", "", "Ray lost it")
        await live.store.nodes.record_order(loss)
    (gone,) = (await named(live)).values()
    assert (gone.name, gone.node_id, gone.address, gone.cpus) == ("m1", None, None, 0)
    assert gone.health.status == "quarantined" and gone.health.quarantines == 1
    assert gone.health.until_s == pytest.approx(now - 480 + 600, abs=1)
    assert [(fault.kind, fault.job_id, fault.message) for fault in gone.health.faults] == [
        ("node_lost", "j", "Ray lost it")
    ] * 3
    opened = await live.client(lambda client: client.uncordon("m1", reason="exchanged"))
    assert opened.health.status == "open" and opened.health.faults == []
    assert await named(live) == {}


async def test_an_error_for_an_unknown_node_lists_the_nodes(live: Any) -> None:
    live.cluster.add_node(node(1))
    with pytest.raises(ApiError, match="no node 'local-7'; nodes: local-1") as refused:
        await live.client(lambda client: client.cordon("local-7"))
    assert refused.value.problem.code == "not_found"


async def test_the_body_is_optional(live: Any) -> None:
    live.cluster.add_node(node(1))
    assert (await live.http.post("/v1/nodes/local-1/cordon")).json()["health"]["status"] == "cordoned"
    assert (await live.http.post("/v1/nodes/local-1/cordon", json={"until": 3})).status_code == 422
