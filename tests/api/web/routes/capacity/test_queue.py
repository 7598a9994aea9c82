"""The queue with the API, the client and the command line."""

import asyncio
from typing import Any

import httpx2
import pytest

from regroup.api.cli.main import main
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from regroup.service.store.rows.records import PLACEABLE, START_ESTIMATED, Condition


async def explain(live: Any, job_id: str, message: str, start: str) -> None:
    """Record the result of a scheduling pass about a job."""
    conditions = (
        Condition(PLACEABLE, False, "resources", message), Condition(START_ESTIMATED, True, "promised", start),
    )  # fmt: skip
    await live.store.set_conditions(live.lease, job_id, conditions, now=live.services.clock())


async def test_the_queue_is_in_scheduling_order_with_reasons_and_starts(live: Any) -> None:
    low = (await live.submit(name="low", priority="low"))["id"]
    first = (await live.submit(name="first", layout={"dp": 4}, project="vision"))["id"]
    await live.submit(name="high", priority="high")
    running = (await live.submit(name="runs"))["id"]
    await live.run(running)
    await explain(live, first, "2 of 4 ranks fit", "2030-01-02T03:04Z")
    found = (await live.http.get("/v1/queue")).json()
    assert [(job["name"], job["position"]) for job in found["jobs"]] == [("high", 0), ("first", 1), ("low", 2)]
    assert found["total"] == 3 and found["jobs"][2]["id"] == low
    assert {name: found["jobs"][1][name] for name in ("message", "reason", "estimated_start_s", "ranks")} == {
        "message": "2 of 4 ranks fit", "reason": "resources", "estimated_start_s": 1893553440.0, "ranks": 4
    }  # fmt: skip
    assert found["projects"] == [
        {"project": "default", "jobs": 2, "devices": 2}, {"project": "vision", "jobs": 1, "devices": 4}
    ]  # fmt: skip
    only = (await live.http.get("/v1/queue?project=vision")).json()
    assert [(job["id"], job["position"]) for job in only["jobs"]] == [(first, 1)] and only["total"] == 1
    part = await live.client(lambda client: client.queue(offset=1, limit=1))
    assert [job.name for job in part.jobs] == ["first"] and part.total == 3
    assert (await live.http.get("/v1/queue?limit=0")).status_code == 422


async def test_a_member_sees_only_the_jobs_of_its_projects(live: Any) -> None:
    await live.submit(name="first")
    own = (await live.submit(name="own", project="vision"))["id"]
    token = generate_token()
    await live.store.identities.create_identity(IdentityRow("ana", IdentityKind.USER, None, False, 0.0, "test"))
    await live.store.identities.put_member(MemberRow("vision", "ana", Membership(Role.VIEWER), 0.0, "test"))
    now = live.services.clock()
    row = TokenRow(token.id, "ana", "", token.digest, None, None, now, "test", now + 600)
    await live.store.identities.create_token(row)
    headers = {"Authorization": f"Bearer {token.value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        found = (await http.get("/v1/queue")).json()
        forecast = (await http.post("/v1/what-if", json={})).json()
    assert [(job["id"], job["position"]) for job in found["jobs"]] == [(own, 1)]
    assert [each["project"] for each in found["projects"]] == ["vision"]
    assert [job["id"] for job in forecast["jobs"]] == [own] and forecast["hidden_jobs"] == 1


async def test_the_command_line_lists_the_queue(live: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = (await live.submit(name="first"))["id"]
    await explain(live, job, "no node is free", "2030-01-02T03:04Z")
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["queue", "--server", live.url])
    assert ended.value.code == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[:6] == ["1", job, "first", "default", "normal", "1"] and row.endswith("no node is free")
