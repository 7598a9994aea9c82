"""Drains with the API, the client and the command line: start, inspect, cancel."""

import asyncio
import time
from typing import Any

from regroup.api.cli.main import main
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import Node
from regroup.service.store.rows.records import Allocation, AllocationKind
from tests.support.inputs.placed_jobs import add_rack, place_job

NODE = Node(id="a1" * 20, name="local-1", address="h", cpus=2, free_cpus=2)


async def held(live: Any, job_id: str) -> None:
    """Run a job that uses a part of the node."""
    name = f"regroup-reservation:{job_id}:x:1"
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    allocate = (Allocation(job_id, AllocationKind.RESERVATION, name, NODE.id, {"ranks": 1}),)
    await live.services.store.apply(live.lease, placed, now=5.0, allocate=allocate)


async def test_a_node_is_drained_inspected_and_undrained(live: Any, make_spec: Any) -> None:
    live.cluster.add_node(NODE)
    job = (await live.http.post("/v1/jobs", json=make_spec())).json()["id"]
    await held(live, job)
    assert (await live.http.get("/v1/nodes/local-1/drain")).status_code == 404
    before = time.time()
    answer = await live.http.post("/v1/nodes/local-1/drain", json={"deadline_s": "2m", "reason": "disks"})
    assert answer.status_code == 202
    drain = answer.json()
    assert (drain["node"], drain["by"], drain["reason"], drain["jobs"]) == ("local-1", "request", "disks", [job])
    assert before + 119 < drain["deadline_at"] < time.time() + 121
    assert [node["is_draining"] for node in (await live.http.get("/v1/nodes")).json()["nodes"]] == [True]
    again = await live.http.post(f"/v1/nodes/{NODE.id}/drain", json={"deadline_s": 5})
    assert again.json()["requested_at"] == drain["requested_at"]
    assert again.json()["deadline_at"] < drain["deadline_at"]
    assert (await live.http.get("/v1/nodes/local-1/drain")).json() == again.json()
    assert (await live.http.delete("/v1/nodes/local-1/drain")).status_code == 204
    assert (await live.http.delete("/v1/nodes/local-1/drain")).status_code == 404
    assert await live.services.store.nodes.drains() == []


async def test_a_drain_that_is_impossible_is_rejected(live: Any) -> None:
    live.cluster.add_node(NODE)
    live.cluster.add_node(Node(id="c" * 40, name="control", address="h", is_control=True))
    live.cluster.add_node(Node(id="b" * 40, name="twin", address="h"))
    live.cluster.add_node(Node(id="d" * 40, name="twin", address="h"))
    for node, status, text in (
        ("local-7", 404, "training nodes: local-1, twin, twin"),
        ("control", 409, "control node"),
        ("twin", 409, f"use an id instead: {'b' * 40}, {'d' * 40}"),
    ):
        answer = await live.http.post(f"/v1/nodes/{node}/drain", json={})
        assert answer.status_code == status and text in answer.json()["detail"]
    for wrong in ({"deadline_s": 0}, {"deadline_s": "soon"}, {"reason": ""}, {"deadline": 5}, {"deadline_s": 1e9}):
        assert (await live.http.post("/v1/nodes/local-1/drain", json=wrong)).status_code == 422


async def test_a_drain_by_ray_is_shown_and_cannot_be_cancelled(live: Any) -> None:
    live.cluster.add_node(NODE)
    live.cluster.drain_node(NODE.id, 99.0)
    drain = (await live.http.get("/v1/nodes/local-1/drain")).json()
    assert (drain["by"], drain["deadline_at"], drain["requested_at"]) == ("ray", 99.0, None)
    answer = await live.http.delete("/v1/nodes/local-1/drain")
    assert answer.status_code == 409 and "Ray itself" in answer.json()["detail"]


async def test_the_client_waits_until_no_job_is_left(live: Any) -> None:
    live.cluster.add_node(NODE)
    assert (await live.client(lambda client: client.drain("local-1", deadline_s=9))).jobs == []
    assert (await live.client(lambda client: client.wait_for_drain("local-1"))).node_id == NODE.id
    await live.client(lambda client: client.undrain("local-1"))


async def test_the_wait_ends_if_the_empty_node_leaves_the_cluster(live: Any, make_spec: Any) -> None:
    live.cluster.add_node(NODE)
    live.cluster.drain_node(NODE.id, None)
    job = (await live.http.post("/v1/jobs", json=make_spec())).json()["id"]
    await held(live, job)
    drains = live.services.store.nodes.drains
    requested = asyncio.Event()

    async def received() -> Any:
        requested.set()
        return await drains()

    live.services.store.nodes.drains = received
    waiting = asyncio.create_task(live.client(lambda client: client.wait_for_drain("local-1")))
    await asyncio.wait_for(requested.wait(), 10)
    live.cluster.remove_node(NODE.id)
    assert (await asyncio.wait_for(waiting, 10)).jobs == []


async def test_the_command(live: Any, make_spec: Any, capsys: Any) -> None:
    live.cluster.add_node(NODE)

    def typed(*words: str) -> int:
        try:
            main([*words, "--server", live.url])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    assert (
        await live.client(lambda _: typed("drain", "local-1", "--deadline", "90s", "--reason", "disks", "--wait")) == 0
    )
    assert capsys.readouterr().out == "local-1 is drained: no job runs there, and no new rank is placed there\n"
    job = (await live.http.post("/v1/jobs", json=make_spec())).json()["id"]
    await held(live, job)
    assert await live.client(lambda _: typed("drain", "local-1", "--deadline", "1s", "--wait")) == 1
    text = capsys.readouterr()
    assert f"still running: {job}" in text.out and "was not empty by" in text.err
    assert await live.client(lambda _: typed("undrain", "local-1")) == 0
    assert capsys.readouterr().out == "local-1 accepts ranks again\n"
    assert await live.client(lambda _: typed("drain", "local-1", "--deadline", "soon")) == 3


async def test_a_dry_run_shows_where_each_job_moves(live: Any) -> None:
    add_rack(live, "a", 2)
    add_rack(live, "b", 1)
    fits = (await live.submit(name="fits", layout={"dp": 4}))["id"]
    waits = (await live.submit(name="waits", layout={"dp": 4}))["id"]
    await place_job(live, fits, {"a-0": 3, "a-1": 1})
    await place_job(live, waits, {"a-0": 1, "a-1": 3})
    request = {"deadline_s": "2h", "also": ["a-1"]}
    moves = (await live.http.post("/v1/nodes/a-0/drain?dry_run=true", json=request)).json()["moves"]
    assert [(move["name"], move["effect"]) for move in moves] == [("fits", "waits"), ("waits", "waits")]
    assert moves[0]["why"].startswith("no other node has capacity for 1 of 4 ranks")
    add_rack(live, "c", 1, cpus=2)
    moves = (await live.http.post("/v1/nodes/a-0/drain?dry_run=true", json=request)).json()["moves"]
    assert [(move["job_id"], move["effect"]) for move in moves] == [(fits, "moves"), (waits, "waits")]
    assert moves[0]["nodes"] == [
        {"source": "a-0", "target": "b-0", "ranks": 3}, {"source": "a-1", "target": "c-0", "ranks": 1}
    ]  # fmt: skip
    assert (await live.http.get("/v1/nodes/a-0/drain")).status_code == 404, "a dry run drains nothing"
    alone = (await live.http.post("/v1/nodes/a-0/drain", json={"deadline_s": "2h"})).json()
    assert [(move["effect"], move["nodes"][0]["target"]) for move in alone["moves"]] == [
        ("moves", "b-0"), ("moves", "b-0")
    ]  # fmt: skip
    assert (await live.http.get("/v1/nodes/a-0/drain")).json()["moves"] == alone["moves"]


async def test_a_job_that_can_shrink_may_continue_on_the_rest(live: Any) -> None:
    add_rack(live, "a", 2)
    job = (await live.submit(name="elastic", layout={"dp": {"min": 2, "target": 4, "max": 4}}))["id"]
    await place_job(live, job, {"a-0": 2, "a-1": 2})
    live.cluster.add_node(Node(id="b" * 40, name="small", address="h", cpus=1, free_cpus=1))
    moves = (await live.http.post("/v1/nodes/a-0/drain?dry_run=true", json={})).json()["moves"]
    assert [(move["effect"], move["nodes"]) for move in moves] == [("shrinks_or_waits", [])]
    unknown = await live.http.post("/v1/nodes/a-0/drain?dry_run=true", json={"also": ["a-9"]})
    assert unknown.status_code == 404 and "a-9" in unknown.json()["detail"]
