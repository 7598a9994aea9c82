"""/v1/jobs/{job}/logs/… over HTTP: the size of an output, search, and several ranks in one stream."""

import asyncio
import json
from typing import Any

import pytest

from regroup.api.client.connection.streams import EventParser


async def running(live: Any, **outputs: str) -> str:
    job = (await live.submit())["id"]
    await live.run(job)
    for name, text in outputs.items():
        put(live, job, name, text)
    return job


def put(live: Any, job: str, name: str, text: str, generation: int = 1) -> None:
    """Set the output `out0`, `err1`, …"""
    live.cluster.logs[job, generation, int(name[3:]), {"out": "stdout", "err": "stderr"}[name[:3]]] = text


async def test_a_part_has_the_size_of_the_output(live: Any) -> None:
    job = await running(live, out0="zwölf\n" * 100)
    for offset in (0, 10, 2**53 - 1):
        answer = await live.http.get(f"/v1/jobs/{job}/logs?offset={offset}&limit=5")
        assert answer.headers["Log-Size"] == "700"
    part = await live.client(lambda client: client.log_part(job, limit=5))
    assert part.size_bytes == 700


async def test_a_search_finds_lines_of_all_outputs(live: Any) -> None:
    job = await running(live, out0="a\nLoss is NaN\n", err0="nan here\n")
    found = (await live.http.get(f"/v1/jobs/{job}/logs/search?text=nan")).json()
    assert [(each["stream"], each["offset"], each["line"]) for each in found["matches"]] == [
        ("stderr", 0, "nan here"), ("stdout", 2, "Loss is NaN"),
    ]  # fmt: skip
    assert found["next_cursor"] is None and found["searched_bytes"] == 23
    first = await live.client(lambda client: client.search_log(job, "nan", limit=1))
    rest = await live.client(lambda client: client.search_log(job, "nan", cursor=first.next_cursor))
    assert [each.line for each in (*first.matches, *rest.matches)] == ["nan here", "Loss is NaN"]


@pytest.mark.parametrize("query", ["", "text=", "text=x&rank=-1", "text=x&limit=501", f"text={'x' * 201}"])
async def test_a_search_has_bounds(live: Any, query: str) -> None:
    job = await running(live)
    assert (await live.http.get(f"/v1/jobs/{job}/logs/search?{query}")).status_code == 422


async def test_an_invalid_cursor_is_refused(live: Any) -> None:
    job = await running(live)
    answer = await live.http.get(f"/v1/jobs/{job}/logs/search?text=x&cursor=1.2")
    assert answer.status_code == 400 and "begin without a cursor" in answer.json()["detail"]


async def read_pieces(
    live: Any, path: str, count: int, headers: dict[str, str] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    raw = b""
    async with asyncio.timeout(20), live.http.stream("GET", path, headers=headers, timeout=20) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for chunk in answer.aiter_bytes():
            raw += chunk
            found = EventParser().feed(raw)
            if len(found) >= count or (found and found[-1].kind == "end"):
                return [("end" if each.kind == "end" else each.id, json.loads(each.data)) for each in found]
    raise AssertionError(raw)


async def test_several_outputs_come_in_one_stream_that_resumes(live: Any, job_events: Any) -> None:
    job = await running(live, out0="x" * 100 + "zero\n", out1="one\n", err1="bad\n")
    path = f"/v1/jobs/{job}/logs/merged?follow=true&rank=0&rank=1&tail_bytes=5"
    pieces = await read_pieces(live, path, 3)
    found = {(each["rank"], each["stream"]): each["text"] for _, each in pieces}
    assert found == {(0, "stdout"): "zero\n", (1, "stdout"): "one\n", (1, "stderr"): "bad\n"}
    last = pieces[-1][0]
    put(live, job, "out1", "one\ntwo\n")
    (again,) = await read_pieces(live, path, 1, {"Last-Event-ID": last})
    assert (again[1]["rank"], again[1]["offset"], again[1]["text"]) == (1, 4, "two\n")
    refused = await live.http.get(path, headers={"Last-Event-ID": "0o1.0"})
    assert refused.status_code == 400 and "other ranks" in refused.json()["detail"]
    await live.report(job, job_events.state("SUCCEEDED", "completed"))
    assert (await read_pieces(live, path, 9))[-1][0] == "end"


async def test_too_many_outputs_are_refused_with_a_remedy(live: Any) -> None:
    job = await running(live)
    ranks = "&".join(f"rank={number}" for number in range(33))
    answer = await live.http.get(f"/v1/jobs/{job}/logs/merged?{ranks}")
    assert answer.status_code == 400 and "66 outputs exceed 64; choose fewer ranks" in answer.json()["detail"]


async def test_the_client_follows_several_ranks(live: Any, job_events: Any) -> None:
    job = await running(live, out0="zero\n", err0="oh\n")
    await live.report(job, job_events.state("SUCCEEDED", "completed"))
    found = await live.client(lambda client: [(each.stream, each.text) for each in client.follow_logs(job)])
    assert sorted(found) == [("stderr", "oh\n"), ("stdout", "zero\n")]


async def test_the_end_of_several_outputs_without_a_stream(live: Any) -> None:
    job = await running(live, out0="x" * 100 + "zero\n", err1="bad\n")
    found = (await live.http.get(f"/v1/jobs/{job}/logs/merged?rank=0&rank=1&tail_bytes=5")).json()["pieces"]
    assert [(each["rank"], each["stream"], each["offset"], each["text"]) for each in found] == [
        (0, "stdout", 100, "zero\n"), (1, "stderr", 0, "bad\n"),
    ]  # fmt: skip
