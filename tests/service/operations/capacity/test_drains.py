"""Drains of nodes: refusals, repeated requests, and drains by Ray itself."""

from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError
from regroup.service.domain.topology import Node
from regroup.service.operations.capacity.drains import NodeDrain, drain_node, get_drain, undrain_node
from tests.support.inputs.placed_jobs import add_rack, place_job

ANA = Author("ana", address="10.0.0.1")


async def drain(live: Any, name: str, now: float = 100.0, **fields: Any) -> NodeDrain:
    services = live.services
    given = {"deadline_s": 60.0, "reason": "disks", "now": now, "author": ANA, **fields}
    return await drain_node(live.store, live.cluster, services.drain_predictor, name, **given)


async def found(live: Any, name: str) -> NodeDrain:
    return await get_drain(live.store, live.cluster, live.services.drain_predictor, name, 200.0)


async def test_a_drain_has_its_jobs_and_their_moves(live: Any) -> None:
    add_rack(live, "r1", 3)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"r1-0": 4})
    made = await drain(live, "r1-0")
    assert (made.by, made.reason, made.requested_at, made.deadline_at, made.jobs) == (
        "request", "disks", 100.0, 160.0, (job,),
    )  # fmt: skip
    assert [(move.job_id, move.effect) for move in made.moves] == [(job, "moves")] and made.etag
    again = await drain(live, "r1-0", now=150.0, deadline_s=5.0)
    assert (again.requested_at, again.deadline_at) == (100.0, 155.0)
    shown = await found(live, "r1-0")
    assert shown.deadline_at == 155.0 and shown.moves == again.moves


async def test_other_nodes_that_leave_change_the_moves_only(live: Any) -> None:
    add_rack(live, "r1", 2)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"r1-0": 4})
    made = await drain(live, "r1-0", also=["r1-1"])
    assert [move.effect for move in made.moves] == ["waits"]
    assert [row.node for row in await live.store.nodes.drains()] == ["r1-0"]


async def test_names_are_checked(live: Any) -> None:
    live.cluster.add_node(Node(id="c" * 40, name="control", address="h", is_control=True))
    for letter in "bd":
        live.cluster.add_node(Node(id=letter * 40, name="twin", address="h"))
    with pytest.raises(NotFoundError, match="training nodes: twin, twin"):
        await drain(live, "absent")
    with pytest.raises(ConflictError, match="use an id instead"):
        await drain(live, "twin")
    with pytest.raises(ConflictError, match="control node"):
        await drain(live, "control")
    assert (await drain(live, "b" * 40)).node_id == "b" * 40


async def test_a_drain_is_undone_once(live: Any) -> None:
    add_rack(live, "r1", 1)
    await drain(live, "r1-0")
    await undrain_node(live.store, live.cluster, "r1-0", now=200.0, author=ANA)
    with pytest.raises(NotFoundError, match="not being drained"):
        await undrain_node(live.store, live.cluster, "r1-0", now=201.0, author=ANA)
    with pytest.raises(NotFoundError, match="not being drained"):
        await found(live, "r1-0")


async def test_a_drain_by_ray_cannot_be_undone(live: Any) -> None:
    (name,) = add_rack(live, "r1", 1)
    (node,) = [each for each in await live.cluster.nodes() if each.name == name]
    live.cluster.drain_node(node.id, 99.0)
    shown = await found(live, name)
    assert (shown.by, shown.deadline_at, shown.etag) == ("ray", 99.0, None)
    with pytest.raises(ConflictError, match="Ray itself"):
        await undrain_node(live.store, live.cluster, name, now=200.0, author=ANA)
