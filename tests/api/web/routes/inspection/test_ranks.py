"""/v1/jobs/{job}/ranks over HTTP, with the client and the command."""

from typing import Any

PHASES = {str(rank): [7, "forward"] for rank in range(4)}


def generation(world_size: int, number: int = 2) -> tuple[str, int, dict[str, Any]]:
    ranks = [
        {"rank": rank, "node_id": f"n{rank // 2}", "node_name": f"node-{rank // 2}", "address": "127.0.0.1",
         "local_rank": rank % 2, "device": rank % 2}
        for rank in range(world_size)
    ]  # fmt: skip
    data = {
        "number": number,
        "layout": {"dp_shard": world_size},
        "world_size": world_size,
        "ranks": ranks,
        "start_step": 0,
    }
    return "generation", number, {**data, "restore": {"source": "none"}, "cause": "start"}


async def test_a_job_without_a_generation_has_no_ranks(live: Any) -> None:
    job = (await live.submit())["id"]
    found = (await live.http.get(f"/v1/jobs/{job}/ranks")).json()
    assert (found["generation"], found["total"], found["ranks"], found["counts"]) == (0, 0, [], {})


async def test_ranks_have_their_place_their_work_and_their_state(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    ranks = {rank: [*place, 0.9 if rank == "3" else 0.1, 0.0, 0.2] for rank, place in PHASES.items()}
    slow = {"rank": 1, "node": "node-0", "work_s": 0.2, "usual_s": 0.1, "is_crowded": True}
    status = {"ranks": ranks}
    await live.report(job, generation(4), ("stragglers", 2, {"ranks": [slow]}), status=status)
    found = (await live.http.get(f"/v1/jobs/{job}/ranks")).json()
    assert [(each["rank"], each["node"], each["device"]) for each in found["ranks"]] == [
        (0, "node-0", "0"), (1, "node-0", "1"), (2, "node-1", "0"), (3, "node-1", "1"),
    ]  # fmt: skip
    assert [each["state"] for each in found["ranks"]] == ["waits", "crowded", "waits", "slow"]
    assert found["counts"] == {"waits": 2, "crowded": 1, "slow": 1}
    assert (found["ranks"][3]["work_s"], found["ranks"][3]["phase"], found["ranks"][3]["step"]) == (0.9, "forward", 7)
    shown = (await live.http.get(f"/v1/jobs/{job}")).json()["rank_phases"]
    assert shown == PHASES


async def test_pages_of_ranks(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    await live.report(job, generation(6))
    page = await live.client(lambda client: client.ranks(job, first=2, limit=3))
    assert [each.rank for each in page.ranks] == [2, 3, 4]
    assert (page.total, page.counts) == (6, {"unknown": 6})
    for query in ("first=-1", "limit=0", "limit=4097"):
        assert (await live.http.get(f"/v1/jobs/{job}/ranks?{query}")).status_code == 422


async def test_a_report_of_an_earlier_generation_does_not_count(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    slow = {"rank": 0, "node": "a", "work_s": 0.2, "usual_s": 0.1, "is_crowded": False}
    await live.report(job, ("stragglers", 1, {"ranks": [slow]}), generation(2), status={"ranks": PHASES})
    found = (await live.http.get(f"/v1/jobs/{job}/ranks")).json()
    assert [each["state"] for each in found["ranks"]] == ["works", "works"]
