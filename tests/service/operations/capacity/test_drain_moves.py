"""Predicted moves of jobs whose nodes leave: other nodes, a smaller size, or none; two jobs never get one node."""

from collections.abc import Sequence
from typing import Any

from regroup.service.operations.capacity.drain_moves import JobMove, NodeMove, predict_moves
from tests.support.inputs.placed_jobs import add_rack, place_job

ELASTIC = {"dp": {"min": 2, "target": 4, "max": 4}}


async def predicted(live: Any, leaving: Sequence[str]) -> list[JobMove]:
    """Return the moves of all jobs when nodes with these names leave."""
    nodes = await live.cluster.nodes()
    ids = {node.id for node in nodes if node.name in leaving}
    rows, jobs = await live.store.live_allocations(), await live.store.live_jobs()
    return predict_moves(jobs, rows, ids, {job.project: nodes for job in jobs})


async def test_a_job_moves_to_a_free_node(live: Any) -> None:
    add_rack(live, "r1", 3)
    job = (await live.submit(name="gpt", layout={"dp": 4}))["id"]
    await place_job(live, job, {"r1-0": 2, "r1-1": 2})
    (move,) = await predicted(live, ["r1-1"])
    assert (move.job_id, move.name, move.effect, move.why) == (job, "gpt", "moves", "")
    assert move.nodes == (NodeMove("r1-1", "r1-2", 2),)


async def test_without_free_nodes_a_job_shrinks_or_waits(live: Any) -> None:
    add_rack(live, "r1", 2)
    for name, layout, node in (("elastic", ELASTIC, "r1-0"), ("fixed", {"dp": 4}, "r1-1")):
        job = (await live.submit(name=name, layout=layout, training=steps()))["id"]
        await place_job(live, job, {node: 4})
    elastic, fixed = await predicted(live, ["r1-0", "r1-1"])
    assert (elastic.effect, fixed.effect) == ("shrinks_or_waits", "waits")
    assert elastic.nodes == fixed.nodes == () and elastic.why and fixed.why


async def test_two_jobs_do_not_get_the_same_node(live: Any) -> None:
    add_rack(live, "r1", 3)
    for name, node in (("a", "r1-0"), ("b", "r1-1")):
        job = (await live.submit(name=name, layout={"dp": 4}, training=steps()))["id"]
        await place_job(live, job, {node: 4})
    first, second = await predicted(live, ["r1-0", "r1-1"])
    assert (first.effect, first.nodes) == ("moves", (NodeMove("r1-0", "r1-2", 4),))
    assert second.effect == "waits"


async def test_a_damaged_record_does_not_stop_the_others(live: Any) -> None:
    add_rack(live, "r1", 3)
    names = {}
    for name, node in (("broken", "r1-0"), ("sound", "r1-1")):
        names[name] = (await live.submit(name=name, layout={"dp": 4}, training=steps()))["id"]
        await place_job(live, names[name], {node: 4})
    nodes, rows = await live.cluster.nodes(), await live.store.live_allocations()
    kept = [row for row in rows if not (row.job_id == names["broken"] and row.kind == "supervisor")]
    leaving = {node.id for node in nodes if node.name in ("r1-0", "r1-1")}
    broken, sound = predict_moves(await live.store.live_jobs(), kept, leaving, {"default": nodes})
    assert broken.effect == "waits" and broken.why.startswith("its record is damaged: ")
    assert sound.effect == "moves"


def steps() -> dict[str, int]:
    return {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10}
