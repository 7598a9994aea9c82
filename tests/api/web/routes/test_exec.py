"""/v1/jobs/{job}/exec over HTTP and with the client."""

import asyncio
import base64

import pytest

from regroup.api.client.connection.errors import ApiError
from regroup.api.schemas.exec import ExecExit, ExecOutput, ExecStarted
from regroup.service.domain.errors import UnavailableError
from regroup.service.local.api_token import user_name


async def running(live) -> str:
    """Run a job with one rank."""
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    return job_id


async def test_output_arrives_as_bytes_before_the_exit_code(live):
    job_id = await running(live)
    live.cluster.outputs = [("stdout", b"\x00\xff\n"), ("stderr", b"bad"), {"code": 3, "why": "exited"}]
    found = await live.client(
        lambda client: list(client.exec(job_id, ["python", "-V"], rank=0, timeout="90s", stdin=b"\x01in"))
    )
    assert found == [
        ExecStarted(node="a", generation=1),
        ExecOutput.model_construct(stream="stdout", data=b"\x00\xff\n"),
        ExecOutput.model_construct(stream="stderr", data=b"bad"),
        ExecExit(code=3, why="exited"),
    ]
    (order,) = live.cluster.orders
    assert (order["job_id"], order["node_id"], order["rank"]) == (job_id, "n0", 0)
    assert (order["command"], order["timeout_s"], order["stdin"]) == (["python", "-V"], 90.0, b"\x01in")


async def test_the_history_contains_actor_and_command(live):
    job_id = await running(live)
    live.cluster.outputs = [{"code": 0, "why": "exited"}]
    typed = ["curl", "-H", "token=abc123", "https://ann:abc123@host", "abc123"]
    await live.client(lambda client: list(client.exec(job_id, typed)))
    event = (await live.store.events(job_id))[-1]
    assert (event.type, event.actor) == ("exec", user_name())
    assert event.data == {"command": "curl", "arguments": 4, "rank": 0, "node": "a"}
    assert "abc123" not in (await live.http.get(f"/v1/jobs/{job_id}/events")).text
    assert live.cluster.orders[-1]["command"] == typed


async def test_proxies_neither_buffer_nor_store_a_commands_output(live):
    job_id = await running(live)
    live.cluster.outputs = [{"code": 0, "why": "exited"}]
    answer = await live.http.post(f"/v1/jobs/{job_id}/exec", json={"command": ["true"]})
    assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-cache", "no")


async def test_an_invalid_command_is_rejected_before_the_first_byte(live, job_events):
    queued = (await live.submit(name="queued"))["id"]
    body = {"command": ["true"]}
    answer = await live.http.post(f"/v1/jobs/{queued}/exec", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict") and "QUEUED" in answer.json()["detail"]
    job_id = await running(live)
    answer = await live.http.post(f"/v1/jobs/{job_id}/exec", json={**body, "rank": 1})
    assert answer.status_code == 404 and "has no rank 1: generation 1 has ranks 0 to 0" in answer.json()["detail"]
    for wrong in ({"command": []}, {"command": ["a\x00b"]}, {**body, "timeout": 0}, {**body, "stdin": "?"}):
        assert (await live.http.post(f"/v1/jobs/{job_id}/exec", json=wrong)).status_code == 422, wrong
    await live.report(job_id, job_events.state("SUCCEEDED", "completed"))
    with pytest.raises(ApiError, match="is SUCCEEDED and has no node"):
        await live.client(lambda client: list(client.exec(job_id, ["true"])))
    assert not live.cluster.orders
    assert not [event for event in await live.store.events(job_id) if event.type == "exec"]


async def test_closing_the_connection_stops_the_command(live):
    job_id = await running(live)
    live.cluster.outputs = [("stdout", b"x")]

    def hang_up(client):
        events = client.exec(job_id, ["sleep", "100"])
        first = [next(events), next(events)]
        events.close()
        return first

    assert len(await live.client(hang_up)) == 2
    (order,) = live.cluster.orders
    async with asyncio.timeout(10):
        while f"end execution {order['key']}" not in live.cluster.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_lost_agent_ends_the_stream(live):
    job_id = await running(live)

    def lose(client):
        events = client.exec(job_id, ["sleep", "100"])
        assert isinstance(next(events), ExecStarted)
        live.cluster.reachable = False
        return list(events)

    assert await live.client(lose) == [ExecExit(code=-9, why="lost")]


async def test_a_server_that_stops_raises_an_error(live, monkeypatch):
    job_id = await running(live)

    async def broken(*_):
        raise RuntimeError("the server broke")

    monkeypatch.setattr(live.cluster, "execution", broken)
    with pytest.raises(UnavailableError, match="stops the command within 30 s"):
        await live.client(lambda client: list(client.exec(job_id, ["true"])))


async def test_stdin_is_limited(live):
    job_id = await running(live)
    body = {"command": ["cat"], "stdin": base64.b64encode(b"x" * (512 * 1024 + 1)).decode()}
    answer = await live.http.post(f"/v1/jobs/{job_id}/exec", json=body)
    assert answer.status_code == 422 and "stdin" in answer.json()["detail"]
