"""Streams while the server stops: real uvicorn, which logs a traceback for every stream that it has to cancel."""

import asyncio
import logging
from typing import Any

import httpx2
import pytest


@pytest.mark.parametrize("what", ["events", "steps", "logs"])
async def test_the_end_of_the_server_completes_open_streams_without_an_error_in_its_log(
    live: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    job_id = (await live.submit())["id"]
    await live.run(job_id)
    logging.getLogger("uvicorn.error").propagate = True
    begun = asyncio.Event()

    async def follow() -> str:
        async with live.http.stream("GET", f"/v1/jobs/{job_id}/{what}?follow=true", timeout=20) as answer:
            chunks = []
            async for chunk in answer.aiter_bytes():
                chunks.append(chunk)
                begun.set()
            return b"".join(chunks).decode()

    following = asyncio.create_task(follow())
    await asyncio.wait_for(begun.wait(), 20)
    live.app.state.open_streams.end()
    text = await asyncio.wait_for(following, 10)
    assert "event: end" not in text, "the job continues: the client must reconnect"
    late = await asyncio.wait_for(live.http.get(f"/v1/jobs/{job_id}/{what}?follow=true"), 10)
    assert late.status_code == 200, "a stream that begins now ends at once, too"
    await live.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    with pytest.raises(httpx2.TransportError):
        await live.http.get("/livez")
