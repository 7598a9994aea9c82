"""The reliability report over HTTP: windows, projects, and what each sender sees; with both clients and over MCP."""

from typing import Any

import httpx2
import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from tests.support.inputs.interruptions import interrupt, record_node_faults, submit_running

HOUR_S = 3600.0
NOW_S = 100 * 86_400.0


@pytest.fixture
async def incidents(live: Any) -> None:
    """Two failures and a resize of 4 devices in `vision`, a hang of 2 in `speech`; faults of two nodes."""
    object.__setattr__(live.services, "clock", lambda: NOW_S)  # services are frozen
    start_s = NOW_S - HOUR_S
    await submit_running(live.store, live.lease, "j_one", now=start_s, project="vision", goodput=0.9)
    await submit_running(live.store, live.lease, "j_two", now=start_s, ranks=2, project="speech", goodput=0.6)
    await interrupt(live.store, live.lease, "j_one", start_s + 60, 1, 1, 0, 3, 2, 2)
    await interrupt(live.store, live.lease, "j_one", start_s + 120, 4, 1, 0, 3, 2, 8, cause="rank 2 exited")
    await interrupt(live.store, live.lease, "j_one", start_s + 180, 0, 1, 0, 1, 1, 1, reason="resized")
    await interrupt(live.store, live.lease, "j_two", start_s + 240, 1800, reason="hang", cause="no rank moved on")
    await record_node_faults(live.store, live.lease, "n1", start_s, NodeEventKind.AGENT_LOST, NodeEventKind.LINK)
    await record_node_faults(live.store, live.lease, "n2", start_s, NodeEventKind.BLAMED)


async def report(live: Any, **parameters: Any) -> dict[str, Any]:
    answer = await live.http.get("/v1/reliability", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_report_has_recoveries_causes_losses_and_nodes(live: Any, incidents: None) -> None:
    found = await report(live)
    assert (found["from_s"], found["to_s"]) == (NOW_S - 30 * 86_400, NOW_S)
    assert (found["incidents"], found["failures"], found["is_partial"]) == (4, 3, False)
    assert (found["recovery"]["count"], found["recovery"]["mean_s"], found["recovery"]["max_s"]) == (2, 13.5, 18)
    phases = {each["phase"]: (each["count"], each["mean_s"]) for each in found["phases"]}
    assert phases["detect"] == (3, pytest.approx(1805 / 3)) and phases["first_step"] == (2, 5)
    causes = {each["reason"]: each for each in found["causes"]}
    assert list(causes) == ["hang", "rank_exit", "resized"]
    assert causes["hang"]["recovery"] is None and causes["hang"]["lost_device_hours"] == 1.0
    assert causes["rank_exit"]["lost_device_hours"] == pytest.approx(4 * 27 / HOUR_S)
    assert causes["resized"]["is_planned"] is True
    assert found["lost_device_hours"] == pytest.approx(1.0 + 4 * 27 / HOUR_S + 4 * 4 / HOUR_S)
    assert found["device_hours"] == pytest.approx(6.0)
    assert found["goodput"] == pytest.approx((4 * 0.9 + 2 * 0.6) / 6)
    assert [(each["node"], each["faults"]) for each in found["nodes"]] == [
        ("n1", {"agent_lost": 1, "link": 1}),
        ("n2", {"blamed": 1}),
    ]
    newest = [(each["job_name"], each["number"], each["reason"]) for each in found["newest"]]
    assert newest == [
        ("j-two", 1, "hang"),
        ("j-one", 3, "resized"),
        ("j-one", 2, "rank_exit"),
        ("j-one", 1, "rank_exit"),
    ]
    assert sum(sum(each["incidents"].values()) for each in found["bins"]) == 4


async def test_a_window_and_a_project_limit_the_report(live: Any, incidents: None) -> None:
    start_s = NOW_S - HOUR_S
    first = await report(live, **{"from": start_s, "to": start_s + 120})
    assert (first["incidents"], first["recovery"]["max_s"]) == (1, 9)
    assert (first["device_hours"], first["goodput"]) == (pytest.approx(0.2), pytest.approx(0.8))
    speech = await report(live, project="speech")
    assert [each["reason"] for each in speech["causes"]] == ["hang"] and speech["device_hours"] == pytest.approx(2.0)
    assert (await report(live, project="nobody"))["incidents"] == 0
    before = await report(live, to=start_s)
    assert (before["incidents"], before["recovery"], before["goodput"], before["nodes"]) == (0, None, None, [])


@pytest.mark.parametrize("wrong", [{"from": 5, "to": 4}, {"from": 1e12}, {"from": -1}, {"project": "NO PROJECT"}])
async def test_a_window_that_is_none_is_refused(live: Any, wrong: dict[str, Any]) -> None:
    answer = await live.http.get("/v1/reliability", params=wrong)
    assert answer.status_code in (400, 422) and answer.json()["errors"]


async def test_members_see_the_incidents_of_their_projects(live: Any, incidents: None) -> None:
    token, store = generate_token(), live.store.identities
    await store.create_identity(IdentityRow("kim", IdentityKind.USER, None, False, 0.0, "test"))
    await store.put_member(MemberRow("speech", "kim", Membership(Role.VIEWER), 0.0, "test"))
    await store.create_token(TokenRow(token.id, "kim", "", token.digest, None, None, 0.0, "test", 1e10))
    headers = {"Authorization": f"Bearer {token.value}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        own = (await http.get("/v1/reliability")).json()
        other = (await http.get("/v1/reliability", params={"project": "vision"})).json()
    assert [each["job"] for each in own["newest"]] == ["j_two"] and own["device_hours"] == pytest.approx(2.0)
    assert (other["incidents"], other["device_hours"], other["newest"]) == (0, 0, [])


async def test_more_incidents_than_a_report_reads_are_named(
    live: Any, incidents: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regroup.service.operations.reports.reliability._MOST_INCIDENTS", 2)
    found = await report(live)
    assert found["is_partial"] is True and [each["reason"] for each in found["newest"]] == ["hang", "resized"]


async def test_both_clients_read_the_report(live: Any, incidents: None) -> None:
    expected = await report(live, project="vision", to=NOW_S)
    found = await live.client(lambda client: client.reliability(project="vision", to_s=NOW_S))
    assert found.model_dump(mode="json") == expected
    async with AsyncClient(live.url, token=live.token) as client:
        assert await client.reliability(project="vision", from_s=NOW_S - 30 * 86_400.0) == found
