"""The overview over HTTP, with the client and the command line: its content, its readers and its cost."""

import time
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.domain.topology import Node
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.policy.hooks.retries import Attempt, Verdict
from regroup.service.ports.cluster import ClusterUnavailableError
from regroup.service.spec.job import parse_spec
from regroup.service.store.rows.hook_rows import DeliveryState
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from regroup.service.store.rows.records import HELD, PLACEABLE, WITHIN_BUDGET, Condition, NewJob
from regroup.service.store.schema.tables import incidents
from tests.support.inputs import held_devices


def node(number: int) -> Node:
    return Node(f"n{number}", f"local-{number}", "10.0.0.1", cpus=4, free_cpus=4, gpus=4, free_gpus=4)


async def overview(live: Any) -> Any:
    answer = await live.http.get("/v1/overview")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def token_of(live: Any, subject: str, project: str) -> dict[str, str]:
    store, token, now = live.store.identities, generate_token(), live.services.clock()
    await store.create_identity(IdentityRow(subject, IdentityKind.USER, None, False, now, "test"))
    await store.put_member(MemberRow(project, subject, Membership(Role.VIEWER), now, "test"))
    await store.create_token(TokenRow(token.id, subject, "", token.digest, None, None, now, "test", now + 600))
    return {"Authorization": f"Bearer {token.value}"}


async def test_the_overview_of_an_empty_server(live: Any) -> None:
    found = await overview(live)
    assert found["summary"] == "0 jobs run on 0 of 0 cores."
    assert (found["attention"], found["queue"], found["incidents"], found["jobs"]) == ([], [], [], {})
    assert [day["goodput"] for day in found["goodput"]] == [None] * 7
    assert found["goodput"][-1]["end_s"] == found["time_s"]
    assert found["links"] == {"grafana": "", "ray_dashboard": ""}


async def test_devices_are_counted_by_what_they_do(live: Any) -> None:
    for number in range(3):
        live.cluster.add_node(node(number))
    live.cluster.add_node(Node("c", "control", "10.0.0.9", is_control=True, gpus=8, free_gpus=8))
    await live.http.post("/v1/nodes/local-2/cordon", json={"reason": "fan"})
    await held_devices.submit(live.store, "job_starts")
    placed = held_devices.reservation("job_starts", "a", 3)
    spare = held_devices.reservation("job_starts", "b", 1)
    spare = replace(spare, data={**spare.data, "spare": True})
    await held_devices.allocate(
        live.store, live.lease, "job_starts", placed, spare, replace(placed, name="c", node_id="n1"), now=1.0
    )
    devices = (await overview(live))["devices"]
    # Both reservations of node n0 are on it, and three more devices on n1; all four of n2 are closed.
    assert devices == {
        "kind": "cuda", "total": 12, "productive": 0, "starting": 6, "recovering": 0, "held": 1, "idle": 1, "closed": 4,
    }  # fmt: skip
    assert (await overview(live))["summary"] == "1 job runs on 7 of 12 GPUs; 1 node is cordoned."


async def test_what_needs_a_person_comes_first_with_its_remedy(live: Any) -> None:
    live.cluster.add_node(node(1))
    now = live.services.clock()
    for number in range(3):
        loss = NodeEvent("local-1", NodeEventKind.NODE_LOST, now - 600 + 60 * number, str(number), "j", "", "lost")
        await live.store.nodes.record_faults(live.lease, [loss], forget_before_s=0.0)
    ids = {name: (await live.submit(name=name))["id"] for name in ("holds", "poor", "large", "fine")}
    since = {"last_transition_time": 0.0}
    for name, condition in (
        ("holds", Condition(HELD, True, "user_error", "exit code 1", **since)),
        ("poor", Condition(WITHIN_BUDGET, False, "job_budget", "its budget is used", **since)),
        ("large", Condition(PLACEABLE, False, "too_large", "it needs 64 devices", **since)),
        ("fine", Condition(PLACEABLE, False, "resources", "4 of 8 devices are free", **since)),
    ):
        await live.store.set_conditions(live.lease, ids[name], [condition], now=now)
    found = await overview(live)
    assert [(each["kind"], each["job_name"] or each["node"]) for each in found["attention"]] == [
        ("job_held", "holds"), ("node_quarantined", "local-1"), ("budget_used", "poor"), ("job_unplaceable", "large"),
    ]  # fmt: skip
    assert found["attention_total"] == 4 and all(each["remedy"] for each in found["attention"])
    assert (found["attention"][0]["job"], found["attention"][0]["project"]) == (ids["holds"], "default")
    assert {(each["reason"], each["jobs"]) for each in found["queue"]} == {
        ("submitted", 2), ("too_large", 1), ("resources", 1),
    }  # fmt: skip
    assert "4 jobs wait; 1 node is quarantined." in found["summary"]


async def test_a_cluster_that_does_not_answer_is_named(live: Any, monkeypatch: Any) -> None:
    async def fail() -> None:
        raise ClusterUnavailableError("the head of Ray is down")

    monkeypatch.setattr(live.cluster, "nodes", fail)
    found = await overview(live)
    (item,) = found["attention"]
    assert (item["kind"], item["cluster"]) == ("cluster_silent", "default") and "head of Ray" in item["message"]
    assert found["summary"].endswith("1 cluster does not answer.")


async def test_a_hook_whose_newest_delivery_failed_is_named(live: Any) -> None:
    object.__setattr__(live.services.settings, "hook_private_networks", ("127.0.0.0/8",))  # settings are frozen
    body = {"url": "https://127.0.0.1:9/x", "name": "pipeline", "events": ["state"]}
    hook = (await live.http.post("/v1/projects/default/hooks", json=body)).json()["id"]

    async def attempt(result: Attempt, state: DeliveryState) -> None:
        await live.http.post(f"/v1/projects/default/hooks/{hook}/test")
        store, now = live.store.hooks.deliveries, time.time() + 1
        (claimed,) = await store.claim(live.lease, busy={}, per_hook=1, limit=1, now=now)
        await store.finish(claimed, result, Verdict(state, 60.0), 0.1, now=now)

    await attempt(Attempt(error="no connection to 127.0.0.1"), DeliveryState.FAILED)
    (item,) = (await overview(live))["attention"]
    assert (item["kind"], item["hook"], item["project"]) == ("hook_failing", hook, "default")
    assert item["message"] == "Hook pipeline of project default fails: no connection to 127.0.0.1"
    await attempt(Attempt(200, is_accepted=True), DeliveryState.DELIVERED)
    assert (await overview(live))["attention"] == []


async def test_incidents_of_the_last_day_are_listed_with_their_numbers(live: Any) -> None:
    job = (await live.submit(name="unlucky"))["id"]
    await live.run(job)
    now = live.services.clock()
    for number, seen_s in ((1, now - 600), (2, now - 60)):
        data = {"id": f"r{number}", "cause": f"cause {number}", "reason": "hang", "generation": 1, "at_step": 2}
        more = {"times": {"seen_s": seen_s}, "durations": {"total": 4.0}, "steps_lost": 3}
        await live.report(job, ("incident", 1, {**data, **more}))
    async with live.store._database.write() as connection:  # reports of the double have times of 1970
        await connection.execute(incidents.update().values(time_s=now - 60))
    found = await overview(live)
    newest = {each["number"]: each for each in found["incidents"]}
    assert found["incidents_total"] == 2 and set(newest) == {1, 2}
    assert newest[2] == {
        "job": job, "job_name": "unlucky", "project": "default", "number": 2, "cause": "cause 2", "reason": "hang",
        "recovery_action": None, "steps_lost": 3, "seen_s": now - 60, "total_s": 4.0,
    }  # fmt: skip


async def test_the_goodput_of_a_day_is_weighted_by_devices(live: Any, job_events: Any) -> None:
    now = live.services.clock()
    for name, devices, goodput in (("job_a", 3, 1.0), ("job_b", 1, 0.2)):
        await held_devices.submit(live.store, name, now=now - 7200)
        held = held_devices.reservation(name, "a", devices)
        await held_devices.allocate(live.store, live.lease, name, held, now=now - 3600)
        await live.report(name, status={"goodput": goodput})
    today = (await overview(live))["goodput"][-1]
    assert today["goodput"] == pytest.approx(0.8) and today["device_hours"] == pytest.approx(4, abs=0.01)


async def test_a_member_sees_only_the_own_projects(live: Any) -> None:
    live.cluster.add_node(node(1))
    await live.submit(name="own", project="vision")
    await live.submit(name="other", project="speech")
    headers = await token_of(live, "kim", "vision")
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        found = (await http.get("/v1/overview")).json()
    assert found["jobs"] == {"QUEUED": 1} and [each["job_name"] for each in found["queue"]] == ["own"]
    assert found["devices"]["total"] == 4


async def twice(live: Any, path: str) -> tuple[Any, Any]:
    """Get an answer, and again with its tag until that is within the second for which an overview is valid."""
    for _ in range(20):
        first = await live.http.get(path)
        again = await live.http.get(path, headers={"If-None-Match": first.headers["etag"]})
        if again.status_code == 304:
            break
    return first, again


@pytest.mark.parametrize("path", ["/v1/overview", "/v1/queue", "/v1/queue?project=speech&limit=1"])
async def test_an_answer_that_the_client_has_is_not_sent_again(live: Any, path: str) -> None:
    await live.submit(name="first", project="speech")
    first, again = await twice(live, path)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await live.submit(name="another", project="speech")
    changed = await live.http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200 and changed.json() != first.json()
    # A tag of what the owner sees shows a member nothing.
    headers = {**await token_of(live, "kim", "vision"), "If-None-Match": changed.headers["etag"]}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        found = await http.get(path)
    assert found.status_code == 200 and "another" not in found.text and "speech" not in found.text


async def test_the_client_and_the_history(live: Any, make_spec: Any) -> None:
    for number in range(300):
        spec = parse_spec(make_spec(name=f"old-{number}"))
        new = NewJob(f"job_{number:018}", spec, f"file:///s/{number}")
        await live.store.submissions.submit(new, now=1.0, author=Author("ana"))
        await live.store.cancel(new.id, now=2.0, author=Author("ana"))
    await live.submit(name="now")
    found = await live.client(lambda client: client.overview())
    assert (dict(found.jobs), dict(found.ended)) == ({"QUEUED": 1}, {})
