"""Server-sent events on a real socket: complete, without duplicates, resumable, with an end."""

import asyncio
import json

import pytest

from regroup.api.client.connection.streams import EventParser


async def read_until(live, path, enough, headers=None):
    """Read events of a stream until `enough` returns True or the stream ends."""
    raw = b""
    async with asyncio.timeout(20), live.http.stream("GET", path, headers=headers, timeout=20) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-cache", "no")
        async for chunk in answer.aiter_bytes():
            raw += chunk
            found = EventParser().feed(raw)
            if len(found) >= enough or (found and found[-1].kind == "end"):
                return found
    raise AssertionError(f"the stream broke off: {raw!r}")


async def test_events_arrive_as_they_happen_and_end_with_the_job(live, job_events):
    job_id = (await live.submit())["id"]
    following = asyncio.create_task(read_until(live, f"/v1/jobs/{job_id}/events?follow=true", 100))
    await live.run(job_id)
    await live.report(job_id, job_events.step(1, 2), job_events.state("SUCCEEDED", "completed"))
    found = await following
    assert found[-1].kind == "end"
    reported = [json.loads(event.data) for event in found[:-1]]
    assert [event["number"] for event in reported] == list(range(1, len(reported) + 1))
    assert [int(event.id) for event in found[:-1]] == [event["number"] for event in reported]
    states = [event["data"]["to"] for event in reported if event["type"] == "state"]
    assert states == ["QUEUED", "PLACING", "STARTING", "RUNNING", "SUCCEEDED"]


async def test_a_stream_resumes_after_the_last_id(live, job_events):
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    path = f"/v1/jobs/{job_id}/events?follow=true"
    first = await read_until(live, path, 2)
    await live.report(job_id, job_events.state("SUCCEEDED", "completed"))
    rest = await read_until(live, path, 100, headers={"Last-Event-ID": first[1].id})
    numbers = [int(event.id) for event in [*first[:2], *rest[:-1]]]
    assert numbers == list(range(1, len(numbers) + 1))
    bad = await live.http.get(path, headers={"Last-Event-ID": "x"})
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_request")


async def test_the_step_stream_includes_repeated_steps(live, job_events):
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    following = asyncio.create_task(read_until(live, f"/v1/jobs/{job_id}/steps?follow=true", 100))
    await live.report(
        job_id, job_events.step(1, 2), job_events.step(1, 3), job_events.formed(2, 2), job_events.step(2, 3)
    )
    await live.report(job_id, job_events.state("SUCCEEDED", "completed"))
    rows = [json.loads(event.data) for event in (await following)[:-1]]
    assert [(row["number"], row["generation"], row["step"]) for row in rows] == [
        (1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 3),
    ]  # fmt: skip


async def test_an_idle_stream_is_kept_alive(live, monkeypatch):
    monkeypatch.setattr("regroup.api.web.event_stream.KEEPALIVE_S", 0.1)
    monkeypatch.setattr("regroup.service.operations.streams.followers.IDLE_S", 0.05)
    job_id = (await live.submit())["id"]
    raw = b""
    async with (
        asyncio.timeout(20),
        live.http.stream("GET", f"/v1/jobs/{job_id}/events?follow=true&after=1") as answer,
    ):
        async for chunk in answer.aiter_bytes():
            raw += chunk
            if raw.count(b":") >= 3:
                break
    assert EventParser().feed(raw) == []


async def test_the_log_stream_continues_across_generations(live, job_events):
    job_id = (await live.submit())["id"]
    path = f"/v1/jobs/{job_id}/logs"
    assert (await live.http.get(path)).status_code == 404
    following = asyncio.create_task(read_until(live, f"{path}?follow=true", 100))
    await live.run(job_id)
    live.cluster.logs[job_id, 1, 0, "stdout"] = "one\u2028é\n"
    await live.report(job_id, job_events.formed(2, 1))
    live.cluster.logs[job_id, 2, 0, "stdout"] = "two\n"
    await live.report(job_id, job_events.state("SUCCEEDED", "completed"))
    found = await following
    pieces = [json.loads(event.data) for event in found[:-1]]
    assert "".join(piece["text"] for piece in pieces) == "one\u2028é\ntwo\n"
    assert [piece["generation"] for piece in pieces] == [1, 2]
    resumed = await read_until(live, f"{path}?follow=true", 100, headers={"Last-Event-ID": "1.0.4"})
    assert "".join(json.loads(event.data)["text"] for event in resumed[:-1]).endswith("é\ntwo\n")
    to_json = await live.http.get(path, params={"generation": 1, "offset": 3})
    assert (to_json.text, to_json.headers["Content-Type"]) == ("\u2028é\n", "text/plain; charset=utf-8")
    assert (await live.http.get(path)).text == "two\n"
    assert (await live.http.get(f"{path}?rank=7")).status_code == 404
    for bad in ("x", "1.5.0", "1.0"):
        assert (await live.http.get(f"{path}?follow=true", headers={"Last-Event-ID": bad})).status_code == 400


async def test_logs_of_an_ended_job_are_read_from_storage(live, job_events, tmp_path):
    job = await live.submit(storage_uri=f"file://{tmp_path}/kept")
    path = f"/v1/jobs/{job['id']}/logs"
    logs = tmp_path / "kept" / "jobs" / job["id"] / "logs"
    logs.mkdir(parents=True)
    await live.run(job["id"])
    live.cluster.logs[job["id"], 2, 0, "stdout"] = "two\n"
    await live.report(job["id"], job_events.formed(2, 1))
    following = asyncio.create_task(read_until(live, f"{path}?follow=true", 100))
    assert (await live.http.get(path)).text == "two\n"
    del live.cluster.logs[job["id"], 2, 0, "stdout"]
    (logs / "g1-rank0.out").write_text("one\n")
    (logs / "g2-rank0.out").write_text("two\nlast\n")
    await live.report(job["id"], job_events.state("SUCCEEDED", "completed"))
    found = await following
    assert found[-1].kind == "end"
    assert "".join(json.loads(event.data)["text"] for event in found[:-1]) == "two\nlast\n"
    assert (await live.http.get(path)).text == "two\nlast\n"
    assert (await live.http.get(f"{path}?offset=4")).text == "last\n"
    assert (await live.http.get(f"{path}?generation=1")).text == "one\n"
    missing = await live.http.get(f"{path}?rank=3")
    assert missing.status_code == 404 and "g2-rank3.out" in missing.json()["detail"]
    live.cluster.reachable = False
    assert (await live.http.get(path)).text == "two\nlast\n"
    assert (await live.http.get(f"{path}?rank=3")).status_code == 503
    assert [event.kind for event in await read_until(live, f"{path}?follow=true&rank=3", 100)] == ["end"]


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_events_are_parsed_from_chunks_of_any_size(cut):
    raw = ': hello\n\nevent: log\nid: 7\ndata: {"text": "a\u2028b"}\n\ndata: x\ndata: y\n\n'.encode()
    parser = EventParser()
    found = [event for part in (raw[:cut], raw[cut : cut + 3], raw[cut + 3 :]) for event in parser.feed(part)]
    assert [(event.kind, event.id, event.data) for event in found] == [
        ("log", "7", '{"text": "a\u2028b"}'),
        ("message", "7", "x\ny"),
    ]
