"""Predicted starts by size with the API, both clients and the command line."""

import asyncio
from typing import Any

import pytest

from regroup.api.cli.main import main
from regroup.api.client.async_client import AsyncClient
from tests.support.inputs.placed_jobs import add_rack


async def test_the_clients_and_the_command_agree(live: Any, capsys: pytest.CaptureFixture[str]) -> None:
    add_rack(live, "r1", 1)
    job = (await live.submit(name="wide", layout={"dp": 8}, training=steps()))["id"]
    answer = (await live.http.get(f"/v1/jobs/{job}/starts")).json()["starts"]
    assert [(each["ranks"], each["is_legal"], each["is_now"]) for each in answer] == [
        (8, True, False), (4, False, True),
    ]  # fmt: skip
    assert answer[1]["confidence"] == "high" and answer[1]["basis"] == "enough devices are free now"
    found = await live.client(lambda client: client.job_starts(job))
    async with AsyncClient(live.url, token=live.token) as client:
        again = await client.job_starts(job)
    assert [(each.ranks, each.is_now, each.basis) for each in again] == [
        (each.ranks, each.is_now, each.basis) for each in found
    ]
    assert [each.layout.dp_shard for each in found] == [8, 4]
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["why", job, "--sizes", "--server", live.url])
    assert ended.value.code in (0, None)
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["RANKS", "SPEC", "START", "CONFIDENCE", "BASIS"]
    assert rows[0][:4] == ["8", "requested", "after", "a"] and rows[1][:5] == ["4", "not", "permitted", "now", "high"]


def steps() -> dict[str, int]:
    return {"global_batch": 8, "micro_batch": 1, "sequence": 16, "steps": 10}
