"""Audit records over HTTP: every route that changes something writes one, and each sender sees its own projects'."""

import dataclasses
import hashlib
import json
from typing import Any

import httpx2
import pytest

from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.hooks import HookKind
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.domain.topology import Node
from regroup.service.local.api_token import user_name
from regroup.service.store.rows.hook_rows import HookRow
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, SessionRow, TokenRow
from tests.api.web.test_permissions import walk
from tests.support.inputs.archives import tar_of

CODE = tar_of({"train.py": b"print(1)\n"})
UPLOAD = f"{hashlib.sha256(CODE).hexdigest()}-{len(CODE)}"
CHANGES_NOTHING = {
    "POST /v1/spec/validate": "checks a spec",
    "POST /v1/spec/sizes": "calculates",
    "POST /v1/plans": "calculates",
    "POST /v1/what-if": "calculates",
    "POST /v1/jobs/{job}/checkpoints/{step}/verify": "reads",
    "POST /v1/uploads": "begins an upload; its end is recorded",
}
VERDICT = {"scenario": "rank-killed", "number": "1", "what": "SIGKILL of a rank", "seed": 0, "passed": True}
ELASTIC = {"dp": {"min": 1, "target": 1, "max": 4}}


@dataclasses.dataclass(frozen=True)
class Call:
    """A request that changes something, and the action that its record must have."""

    route: str
    action: str
    path: str = ""
    body: Any = None
    headers: Any = None

    @property
    def request(self) -> tuple[str, str]:
        method, _, route = self.route.partition(" ")
        return method, self.path or route


async def calls(live: Any, job_events: Any) -> list[Call]:
    """Return one request for each route that changes something, in an order in which all of them succeed."""
    live.cluster.add_node(Node(id="a1" * 20, name="local-1", address="h", cpus=2, free_cpus=2))
    live.cluster.outputs = [{"code": 0, "why": "exited"}]
    jobs = {name: (await live.submit(name=name, layout=ELASTIC))["id"] for name in ("queued", "running", "held")}
    await live.run(jobs["running"])
    await live.report(
        jobs["running"], ("checkpoint", 1, {"step": 1, "generation": 1, "uri": "file:///c", "bytes": 1, "seconds": 1.0})
    )
    await live.run(jobs["held"])
    held = {"until_s": 1.8e9, "reason": "user_error", "message": "bad", "error": {"kind": "E"}, "stacks": {}}
    await live.report(jobs["held"], ("held", 1, held), job_events.state("DRAINING", "user_error", message="kept"))
    await live.store.identities.create_identity(IdentityRow("bob", IdentityKind.USER, None, False, 1.0, "test"))
    token = TokenRow("t0", "bob", "", "0" * 64, None, None, 1.0, "test")
    await live.store.identities.create_token(token)
    session = SessionRow("ses_1", "bob", "0" * 64, "0" * 64, "127.0.0.1", "", 1.0, 4e9, token_id="t0")
    await live.store.identities.sessions.create(session, most=5)
    await live.http.post("/v1/uploads", json={"sha256": UPLOAD[:64], "size_bytes": len(CODE)})
    queued, running = f"/v1/jobs/{jobs['queued']}", f"/v1/jobs/{jobs['running']}"
    pin = f"{running}/checkpoints/1/pin"
    member = "/v1/projects/own/members/ana"
    await live.store.hooks.create(HookRow(
        "hook_1", "own", "ci", HookKind.CLOUDEVENTS, "https://a.example/in?password", (), ("state",), {}, True,
        "whsec_password", 1.0, "test",
    ))  # fmt: skip
    hooks, hook = "/v1/projects/own/hooks", "/v1/projects/own/hooks/hook_1"
    secret = "/v1/projects/own/secrets/hf-token"
    new_hook = {"name": "ci", "url": "https://a.example/in?password"}
    return [
        Call("PUT /v1/projects/{name}", "projects.put", "/v1/projects/own", {"limit": 8}),
        Call("POST /v1/identities", "identities.create", "", {"subject": "ana"}),
        Call("PATCH /v1/identities/{subject}", "identities.change", "/v1/identities/ana", {"is_operator": True}),
        Call("PUT /v1/projects/{name}/members/{subject}", "members.put", member, {"role": "viewer"}),
        Call("POST /v1/tokens", "tokens.create", "", {"name": "laptop", "subject": "ana"}),
        Call("POST /v1/session-links", "sessions.link"),
        Call("DELETE /v1/sessions/{session}", "sessions.revoke", "/v1/sessions/ses_1"),
        Call("DELETE /v1/tokens/{token}", "tokens.revoke", "/v1/tokens/t0"),
        Call("DELETE /v1/projects/{name}/members/{subject}", "members.remove", member),
        Call("DELETE /v1/identities/{subject}", "identities.delete", "/v1/identities/ana"),
        Call("POST /v1/secrets/reencrypt", "secrets.reencrypt"),  # the secret of the hook was stored without a key
        Call("PUT /v1/projects/{name}/secrets/{secret}", "secrets.set", secret, {"value": "password"}),
        Call("DELETE /v1/projects/{name}/secrets/{secret}", "secrets.delete", secret),
        Call("POST /v1/chaos/verdicts", "chaos.record", "", VERDICT),
        Call("POST /v1/projects/{name}/hooks", "hooks.create", hooks, new_hook),
        Call("PATCH /v1/projects/{name}/hooks/{hook}", "hooks.change", hook, {"events": ["held"]}),
        Call("POST /v1/projects/{name}/hooks/{hook}/rotate", "hooks.rotate", f"{hook}/rotate"),
        Call("POST /v1/projects/{name}/hooks/{hook}/test", "hooks.test", f"{hook}/test"),
        Call(
            "POST /v1/projects/{name}/hooks/{hook}/deliveries/{delivery}/redeliver",
            "hooks.redeliver",
            f"{hook}/deliveries/1/redeliver",
        ),
        Call("DELETE /v1/projects/{name}/hooks/{hook}", "hooks.delete", hook),
        Call("DELETE /v1/projects/{name}", "projects.delete", "/v1/projects/own"),
        Call("PATCH /v1/uploads/{upload}", "archives.store", f"/v1/uploads/{UPLOAD}", CODE, {"Upload-Offset": "0"}),
        Call("POST /v1/jobs", "jobs.submit", "", None),
        Call("POST /v1/jobs/{job}/suspend", "jobs.suspend", f"{queued}/suspend", {"reason": "later"}),
        Call("POST /v1/jobs/{job}/resume", "jobs.resume", f"{queued}/resume"),
        Call("POST /v1/jobs/{job}/resize", "jobs.resize", f"{queued}/resize", {"dp": 2}),
        Call("PUT /v1/jobs/{job}/budget", "jobs.budget", f"{queued}/budget", {"device_hours": 5}),
        Call("POST /v1/jobs/{job}/cancel", "jobs.cancel", f"{queued}/cancel"),
        Call("PUT /v1/jobs/{job}/checkpoints/{step}/pin", "checkpoints.pin", pin),
        Call("DELETE /v1/jobs/{job}/checkpoints/{step}/pin", "checkpoints.unpin", pin),
        Call("POST /v1/jobs/{job}/exec", "jobs.exec", f"{running}/exec", {"command": ["curl", "password"]}),
        Call("POST /v1/jobs/{job}/release", "jobs.release", f"/v1/jobs/{jobs['held']}/release"),
        Call("POST /v1/probes", "jobs.submit", "", {"device": "cpu"}),
        Call("POST /v1/nodes/{name}/cordon", "nodes.cordon", "/v1/nodes/local-1/cordon", {"reason": "fan"}),
        Call("POST /v1/nodes/{name}/uncordon", "nodes.uncordon", "/v1/nodes/local-1/uncordon", {"reason": "new fan"}),
        Call("POST /v1/nodes/{node}/drain", "nodes.drain", "/v1/nodes/local-1/drain", {"deadline_s": 60}),
        Call("DELETE /v1/nodes/{node}/drain", "nodes.undrain", "/v1/nodes/local-1/drain"),
    ]


async def test_each_route_that_changes_something_writes_one_record(live: Any, job_events: Any, make_spec: Any) -> None:
    tried: set[str] = set()
    for call in await calls(live, job_events):
        before = len(await records(live))
        body = make_spec(name="new") if call.route == "POST /v1/jobs" else call.body
        content = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        answer = await live.http.request(*call.request, headers=call.headers or {}, **content)
        assert answer.is_success, (call, answer.text)
        record, *others = await records(live)
        assert len(others) == before and record["action"] == call.action, (call, record)
        assert (record["actor"], record["token_id"], record["address"]) == (user_name(), None, "127.0.0.1")
        assert record["before"] != record["after"] and record["object"], record
        assert "password" not in json.dumps(record) and "digest" not in json.dumps([record["before"], record["after"]])
        tried.add(call.route)
    changing = {str(each) for each in walk(live.app.routes) if each.method not in ("GET", "HEAD")}
    assert changing - tried == set(CHANGES_NOTHING), "a route that changes something is not in `calls`"


async def test_a_refused_request_and_one_without_effect_write_nothing(live: Any) -> None:
    job = (await live.submit())["id"]
    before = await records(live)
    for path, status in ((f"/v1/jobs/{job}/resume", 202), (f"/v1/jobs/{job}/release", 409), ("/v1/jobs/x/cancel", 404)):
        assert (await live.http.post(path)).status_code == status
    assert (await live.http.put("/v1/projects/own", json={"limit": -1})).status_code == 422
    assert await records(live) == before


async def test_records_show_the_change_and_the_token(live: Any) -> None:
    token = generate_token()
    await live.store.identities.create_identity(IdentityRow("ana", IdentityKind.USER, None, True, 1.0, "test"))
    await live.store.identities.create_token(TokenRow(token.id, "ana", "", token.digest, None, None, 1.0, "test"))
    async with httpx2.AsyncClient(base_url=live.url, trust_env=False, headers=bearer(token.value)) as http:
        for limit in (4, 8):
            await http.put("/v1/projects/vision", json={"limit": limit})
    second, first = await records(live, actor="ana", object="vision")
    assert (first["before"], first["after"]["limit"]) == (None, 4)
    assert (second["before"]["limit"], second["after"]["limit"]) == (4, 8)
    assert second["token_id"] == token.id and second["project"] == "vision"


async def test_senders_see_the_changes_of_projects_that_they_administer(live: Any) -> None:
    tokens = dict[str, str]()
    for name, role in (("ana", Role.ADMIN), ("eve", Role.EDITOR)):
        parts, row = generate_token(), IdentityRow(name, IdentityKind.USER, None, False, 1.0, "test")
        await live.store.identities.create_identity(row)
        await live.store.identities.put_member(MemberRow("own", name, Membership(role), 1.0, "test"))
        await live.store.identities.create_token(TokenRow(parts.id, name, "", parts.digest, None, None, 1.0, "test"))
        tokens[name] = parts.value
    for project in ("own", "other"):
        await live.http.put(f"/v1/projects/{project}", json={"limit": 1})
    live.cluster.add_node(Node(id="a1" * 20, name="local-1", address="h", cpus=2, free_cpus=2))
    await live.http.post("/v1/nodes/local-1/cordon", json={"reason": "fan"})
    await live.store.audit.seal()
    seen: dict[str, Any] = {}
    for name, token in tokens.items():
        async with httpx2.AsyncClient(base_url=live.url, trust_env=False, headers=bearer(token)) as http:
            answers = [await http.get(path) for path in ("/v1/audit", "/v1/audit/export", "/v1/audit/chain")]
            of_other = await http.get("/v1/audit", params={"project": "other"})
            seen[name] = [answer.status_code for answer in answers]
            if name == "ana":
                assert [each["object"] for each in answers[0].json()["records"]] == ["own"]
                assert [json.loads(line)["object"] for line in answers[1].text.splitlines()] == ["own"]
                assert of_other.json()["records"] == []
    assert seen == {"ana": [200, 200, 403], "eve": [403, 403, 403]}
    assert len(await records(live)) == 3 and len(await records(live, project="own")) == 1


async def test_pages_and_exports_contain_each_record_once(live: Any) -> None:
    for limit in range(1, 8):
        await live.http.put("/v1/projects/own", json={"limit": limit})
    found, token = [], ""
    for _ in range(4):
        answer = (await live.http.get("/v1/audit", params={"page_size": 2, "page_token": token})).json()
        found += [record["after"]["limit"] for record in answer["records"]]
        token = answer["next_page_token"]
    assert found == [7, 6, 5, 4, 3, 2, 1] and token == ""
    wrong = await live.http.get("/v1/audit", params={"page_token": "x", "actor": "ana"})
    assert wrong.status_code == 400
    assert (await live.http.get("/v1/audit/export")).text == "", "no record is sealed"
    await live.store.audit.seal()
    whole = await live.http.get("/v1/audit/export")
    assert whole.headers["Content-Type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in whole.text.splitlines()]
    assert [line["position"] for line in lines] == list(range(1, 8))
    part = await live.http.get("/v1/audit/export", params={"after": 2, "limit": 3})
    assert part.text.splitlines() == whole.text.splitlines()[2:5]
    end = (await live.http.get("/v1/audit/chain")).json()["end"]
    assert end == {"position": 7, "digest": lines[-1]["digest"]}


@pytest.mark.parametrize("query", ["since=nan", "until=-1", "actor=", "limit=x", "unknown=1"])
async def test_a_wrong_filter_is_refused(live: Any, query: str) -> None:
    path = "/v1/audit/export" if query.startswith("limit") else "/v1/audit"
    assert (await live.http.get(f"{path}?{query}")).status_code == 422


async def records(live: Any, **filters: Any) -> list[dict[str, Any]]:
    """Return the newest records."""
    return (await live.http.get("/v1/audit", params=filters)).json()["records"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
