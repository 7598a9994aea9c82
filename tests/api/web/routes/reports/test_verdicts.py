"""Chaos rehearsals over HTTP: record and list verdicts, both clients, limits, the permission."""

from typing import Any

import httpx2
import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.local.api_token import user_name
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from tests.support.inputs.verdicts import verdict


async def test_a_recorded_verdict_is_listed(live: Any) -> None:
    given = verdict(passed=False, invariants={"I1": False}, problems=["I1: 3 steps are missing"])
    made = await live.http.post("/v1/chaos/verdicts", json=given)
    assert made.status_code == 201 and made.json()["verdict"] == given and made.json()["recorded_by"] == user_name()
    await live.http.post("/v1/chaos/verdicts", json=verdict("node-killed"))
    listed = (await live.http.get("/v1/chaos/verdicts")).json()["verdicts"]
    assert [each["verdict"]["scenario"] for each in listed] == ["node-killed", "rank-killed"]
    assert listed[1] == made.json()
    for parameters in ({"scenario": "node-killed"}, {"limit": 1}):
        assert (await live.http.get("/v1/chaos/verdicts", params=parameters)).json()["verdicts"] == listed[:1]


async def test_both_clients_record_and_list(live: Any) -> None:
    first = await live.client(lambda client: client.record_chaos_verdict(verdict()))
    async with AsyncClient(live.url, token=live.token) as client:
        second = await client.record_chaos_verdict(verdict("node-killed"))
        assert await client.chaos_verdicts() == [second, first]
        assert await client.chaos_verdicts(scenario="rank-killed") == [first]
    assert await live.client(lambda client: client.chaos_verdicts(limit=1)) == [second]


async def test_a_dry_run_records_nothing_and_a_repetition_records_once(live: Any) -> None:
    assert (await live.http.post("/v1/chaos/verdicts", params={"dry_run": True}, json=verdict())).status_code == 201
    assert (await live.http.get("/v1/chaos/verdicts")).json()["verdicts"] == []
    for _ in range(2):
        await live.http.post("/v1/chaos/verdicts", json=verdict(), headers={"Idempotency-Key": "k1"})
    assert len((await live.http.get("/v1/chaos/verdicts")).json()["verdicts"]) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"problems": ["p"] * 51},
        {"problems": ["p" * 1001]},
        {"what": "w" * 501},
        {"scenario": "Rank Killed"},
        {"steps_lost": -1},
        {"detect_s": "soon"},
        {"incidents": ["rank exit"]},
        {"node": "n1"},
    ],
)
async def test_verdicts_are_bounded(live: Any, fields: dict[str, Any]) -> None:
    found = await live.http.post("/v1/chaos/verdicts", json=verdict(**fields))
    assert (found.status_code, found.json()["code"]) == (422, "invalid_spec"), found.text


@pytest.mark.parametrize(
    ("membership", "status"),
    [(Membership(Role.EDITOR), 403), (Membership(Role.EDITOR, frozenset({"faults"})), 201)],
)
async def test_recording_needs_the_permission_to_inject_faults(live: Any, membership: Membership, status: int) -> None:
    token, store = generate_token(), live.store.identities
    await store.create_identity(IdentityRow("ana", IdentityKind.USER, None, False, 1.0, "test"))
    await store.put_member(MemberRow("own", "ana", membership, 1.0, "test"))
    await store.create_token(TokenRow(token.id, "ana", "", token.digest, None, None, 1.0, "test"))
    headers = {"Authorization": f"Bearer {token.value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        assert (await http.post("/v1/chaos/verdicts", json=verdict())).status_code == status
        assert (await http.get("/v1/chaos/verdicts")).status_code == 200
