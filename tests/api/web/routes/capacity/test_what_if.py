"""Simulations of the queue with the API, the client and the command line."""

import asyncio
from typing import Any

import pytest

from regroup.api.cli.main import main
from tests.support.inputs.placed_jobs import add_rack, place_job


async def queue_of_three(live: Any) -> list[str]:
    """Fill a rack of two nodes for an hour, and let three jobs wait, each for a node."""
    add_rack(live, "r1", 2)
    runs = (await live.submit(name="runs", layout={"dp": 8}, training=steps(7200)))["id"]
    await place_job(live, runs, {"r1-0": 4, "r1-1": 4})
    ids = [(await live.submit(name=f"waits-{n}", layout={"dp": 4}, max_duration="1h"))["id"] for n in range(3)]
    return [runs, *ids]


def steps(count: int) -> dict[str, int]:
    return {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": count}


async def post(live: Any, **scenario: Any) -> Any:
    answer = await live.http.post("/v1/what-if", json=scenario)
    assert answer.status_code == 200, answer.text
    return answer.json()


def starts_s(found: Any, when: str) -> dict[str, float | None]:
    """Return name → start in seconds from now, of the jobs that wait."""
    return {
        job["name"]: None if job[f"start_{when}_s"] is None else job[f"start_{when}_s"] - found["now_s"]
        for job in found["jobs"]
        if not job["is_running"]
    }


async def test_the_queue_without_a_change_is_a_forecast(live: Any) -> None:
    await queue_of_three(live)
    found = await post(live)
    before = starts_s(found, "before")
    assert before == starts_s(found, "after")
    # `runs` needs 7199 more steps of 0.5 s. Two of the others follow it, and the third follows these.
    assert before["waits-0"] == before["waits-1"] == pytest.approx(3600, abs=60)
    assert before["waits-2"] == pytest.approx(3600 + 3600 + 120, abs=150)
    basis = {job["name"]: job["basis"] for job in found["jobs"]}
    assert basis["runs"] == "progress" and basis["waits-0"] == "max_duration"
    assert found["summary"] == "Without a change, the median wait is 1 h."


async def test_more_nodes_let_jobs_start_now(live: Any) -> None:
    _, *waiting = await queue_of_three(live)
    found = await post(live, add_nodes={"count": 3})
    assert all((start or 0) <= 60 for start in starts_s(found, "after").values())
    assert found["waits"]["earlier"] == 3 and found["waits"]["later"] == 0
    assert found["summary"].startswith(
        "With 3 more nodes, the median wait falls from 1 h to 30 s; 3 jobs start earlier"
    )
    assert {job["id"] for job in found["jobs"]} >= set(waiting)
    assert found["projects"]["default"]["median_after_s"] == found["waits"]["median_after_s"]


async def test_a_drained_rack_moves_the_start_of_jobs(live: Any) -> None:
    runs, *_ = await queue_of_three(live)
    add_rack(live, "r2", 1)
    found = await post(live, drain=["rack:r1"], horizon_s=86_400)
    (interrupted,) = [job for job in found["jobs"] if job["id"] == runs]
    assert interrupted["start_after_s"] is None, "8 ranks do not fit on the node that is left"
    assert found["waits"]["never_after"] == 0 and found["waits"]["later"] >= 1
    unknown = await live.http.post("/v1/what-if", json={"drain": ["rack:r9"]})
    assert unknown.status_code == 422 and unknown.json()["errors"][0]["pointer"] == "/drain/0"


async def test_quotas_and_jobs_of_a_scenario_count(live: Any) -> None:
    runs, *waiting = await queue_of_three(live)
    limited = await post(live, quotas={"default": {"limit": 4}}, cancel=[runs])
    after = sorted((start or 0) // 3600 for start in starts_s(limited, "after").values())
    assert after == [0, 1, 2], "one job after the other"
    free = await post(live, cancel=[runs], add_jobs=[
        {"name": "new", "ranks": 8, "duration_s": 600, "device": "cpu", "priority": "critical"}
    ])  # fmt: skip
    (added,) = [job for job in free["jobs"] if job["is_added"]]
    assert added["start_after_s"] - free["now_s"] <= 60 and added["basis"] == "given"
    assert free["summary"].startswith("With 1 job cancelled, 1 job added, the median wait falls from 1 h")
    assert sum(job["is_cancelled"] for job in free["jobs"]) == 1
    unknown = await live.http.post("/v1/what-if", json={"cancel": [waiting[0], "j_9"]})
    assert unknown.status_code == 422 and unknown.json()["errors"][0]["pointer"] == "/cancel/1"


@pytest.mark.parametrize(
    "scenario",
    [{"add_nodes": {"count": 0}}, {"horizon_s": 1e9}, {"add_jobs": [{"name": "x", "ranks": 4}]}, {"nodes": 3}],
)
async def test_a_scenario_out_of_bounds_is_refused(live: Any, scenario: dict[str, Any]) -> None:
    assert (await live.http.post("/v1/what-if", json=scenario)).status_code == 422


async def test_nothing_is_changed(live: Any) -> None:
    runs, *_ = await queue_of_three(live)
    before = (await live.http.get("/v1/nodes")).json()
    await post(live, drain=["r1-0"], cancel=[runs], quotas={"default": {"limit": 1}})
    assert (await live.http.get("/v1/nodes")).json() == before
    assert (await live.http.get("/v1/projects/default")).json()["limit"] is None


async def test_the_command_line_prints_the_comparison(live: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runs, *_ = await queue_of_three(live)
    arguments = ["what-if", "--add-nodes", "3", "--cancel", runs, "--quota", "default.weight=2"]
    arguments += ["--add-job", "name=new,ranks=4,duration_s=60,device=cpu", "--server", live.url]
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, arguments)
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("With 3 more nodes, other quotas of default, 1 job cancelled, 1 job added")
    assert len(lines) == 7 and any("waits-2" in line for line in lines)
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["what-if", "--quota", "default=2", "--server", live.url])
    assert ended.value.code == 2
