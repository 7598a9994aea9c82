"""Resizes with the API, the client and the command line."""

import asyncio
import contextlib
from typing import Any

from regroup.api.cli.main import main
from regroup.service.domain.author import Author
from regroup.service.domain.layout import Layout
from regroup.service.planner.alternatives import list_layouts
from regroup.service.planner.capacity import find_capacity
from regroup.service.policy.placement.demand import Demand
from regroup.service.spec.job import parse_spec
from tests.support.inputs.auto_layout_specs import auto_json, cpu_nodes

ELASTIC = {"dp": {"min": 1, "target": 1, "max": 4}}


def split(dp: int) -> dict[str, int]:
    return {"dp_replicate": 1, "dp_shard": dp, "cp": 1, "tp": 1, "pp": 1}


async def running(live: Any) -> str:
    job = (await live.submit(layout=ELASTIC))["id"]
    await live.run(job)
    return job


async def comes(live: Any, job: str, dp: int) -> None:
    """Complete the resize as the controller would."""
    data = {"number": dp, "layout": split(dp), "world_size": dp, "ranks": [], "start_step": 1, "restore": {}}
    await live.report(job, ("generation", dp, data))
    await live.store.intend(job, lambda _: {"resize": None}, now=9.0, author=Author("test"), action="jobs.resize")


async def test_a_resize_is_requested_and_repeated(live: Any) -> None:
    job = await running(live)
    answer = await live.http.post(f"/v1/jobs/{job}/resize", json={"dp": 3, "reason": "two nodes came"})
    assert answer.status_code == 202
    assert answer.json()["intents"]["resize"]["layout"] == split(3)
    assert answer.json()["intents"]["resize"]["why"] == "two nodes came"
    again = await live.http.post(f"/v1/jobs/{job}/resize", json={"dp": 3})
    assert again.json()["version"] == answer.json()["version"]
    back = await live.http.post(f"/v1/jobs/{job}/resize", json={"dp": 1})
    assert back.json()["intents"]["resize"]["layout"] == split(1), "the request remains although the size is reached"


async def test_an_impossible_request_is_rejected(live: Any) -> None:
    job = await running(live)
    answer = await live.http.post(f"/v1/jobs/{job}/resize", json={"dp": 9})
    assert answer.status_code == 422 and "nearest legal: 3 and 4" in answer.text
    for wrong in ({}, {"dp": 0}, {"dp": "many"}, {"dp": 2, "cp": 2}, {"dp": 2, "reason": ""}):
        assert (await live.http.post(f"/v1/jobs/{job}/resize", json=wrong)).status_code == 422, wrong
    other = (await live.submit(name="other", layout=ELASTIC))["id"]
    await live.http.post(f"/v1/jobs/{other}/cancel")
    answer = await live.http.post(f"/v1/jobs/{other}/resize", json={"dp": 2})
    assert answer.status_code == 409 and "is CANCELLED" in answer.json()["detail"]
    assert (await live.http.post("/v1/jobs/nobody/resize", json={"dp": 2})).status_code == 404


async def test_the_client_waits_until_the_job_is_resized(live: Any) -> None:
    job = await running(live)
    reported = await live.client(lambda client: client.resize(job, 2))
    assert reported.intents["resize"]["layout"] == split(2)
    waiting = asyncio.create_task(live.client(lambda client: client.wait_for_resize(job)))
    await comes(live, job, 2)
    assert await waiting == Layout(dp_shard=2)


async def test_the_command(live: Any, capsys: Any) -> None:
    job = await running(live)

    def typed(*words: str) -> int:
        try:
            main(["resize", "gpt", *words, "--server", live.url])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    assert await live.client(lambda _: typed("--dp", "2")) == 0
    assert "resizing gpt from 1 rank to dp_shard=2 when the capacity is available" in capsys.readouterr().out
    waiting = asyncio.create_task(live.client(lambda _: typed("--dp", "3", "--wait")))
    async with asyncio.timeout(10):
        while (await live.store.job(job)).intents["resize"]["layout"] != split(3):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await comes(live, job, 3)
    assert await waiting == 0
    assert "gpt runs at dp_shard=3" in capsys.readouterr().out
    assert await live.client(lambda _: typed("--dp", "3")) == 0
    assert "gpt already has this size" in capsys.readouterr().out
    assert await live.client(lambda _: typed("--dp", "9")) == 3
    assert "nearest legal: 3 and 4" in capsys.readouterr().err


async def test_the_planner_chooses_the_degrees_for_a_number_of_ranks(live: Any, capsys: Any) -> None:
    for node in cpu_nodes(2, 2):
        live.cluster.add_node(node)
    answer = await live.http.post(
        "/v1/jobs", json=auto_json({"dp": {"min": 1, "target": 2, "max": 2}, "pp": 2}, micro_batch=4)
    )
    job = answer.json()["id"]
    await live.run(job)
    capacity = find_capacity(Demand(1, 1, "cpu", 1), cpu_nodes(2, 2))
    fastest = list_layouts(parse_spec(answer.json()["spec"]), 4, capacity)[0][0]
    assert fastest != Layout(dp_shard=2, pp=2), "the planner must choose another layout for this test to be meaningful"
    reported = await live.client(lambda client: client.resize(job, ranks=4))
    assert reported.intents["resize"]["layout"] == fastest.to_json()
    for wrong, message in (
        ({"ranks": 5}, "this job can have 2 to 4 ranks"),
        ({"ranks": 4, "dp": 2}, "exactly one of dp and ranks"),
        ({"ranks": 4, "tp": 2}, "the planner chooses tp and pp"),
    ):
        answer = await live.http.post(f"/v1/jobs/{job}/resize", json=wrong)
        assert answer.status_code == 422 and message in answer.text, answer.text
    with contextlib.suppress(SystemExit):
        await asyncio.to_thread(main, ["resize", "gpt", "--ranks", "4", "--server", live.url])
    assert f"to {fastest} when the capacity is available" in capsys.readouterr().out
    script = {"name": "s", "workload": {"kind": "script", "entrypoint": "/x.py"}, "layout": {"dp": 2}}
    other = (await live.http.post("/v1/jobs", json=script)).json()["id"]
    answer = await live.http.post(f"/v1/jobs/{other}/resize", json={"ranks": 2})
    assert answer.status_code == 422 and "the planner cannot model user code" in answer.text
