"""Tools that change something: previews, confirm values, and what the API then has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from regroup.service.domain.topology import Node
from tests.support.servers.mcp_agents import Agent, agent_over_http, mcp_over_http


@asynccontextmanager
async def connected(live: Any, token: str | None = None) -> AsyncIterator[Agent]:
    """Connect an agent with a token; default: that of the owner."""
    async with mcp_over_http(live.url) as url, agent_over_http(url, token or live.token) as agent:
        yield agent


async def token_of(live: Any, subject: str, project: str, role: str, *permissions: str) -> str:
    """Return a token of a new member."""
    await live.http.post("/v1/identities", json={"subject": subject, "kind": "user"})
    body = {"role": role, "permissions": list(permissions)}
    await live.http.put(f"/v1/projects/{project}/members/{subject}", json=body)
    answer = await live.http.post("/v1/tokens", json={"name": "agent", "subject": subject})
    return answer.json()["value"]


async def test_a_change_without_confirm_changes_nothing(live: Any, make_spec: Any) -> None:
    job = (await live.submit())["id"]
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    hook = (
        await live.http.post("/v1/projects/default/hooks", json={"name": "ci", "url": "https://example.com/x"})
    ).json()
    await live.http.post("/v1/identities", json={"subject": "kim", "kind": "user"})
    token = (await live.http.post("/v1/tokens", json={"name": "laptop", "subject": "kim"})).json()["id"]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("submit_job", {"spec": make_spec(name="second")}),
        ("resubmit_job", {"job": job, "name": "third"}),
        ("cancel_job", {"job": job}),
        ("suspend_job", {"job": job}),
        ("resize_job", {"job": job, "dp": 1}),
        ("set_job_budget", {"job": job, "device_hours": 5}),
        ("cordon_node", {"node": "local-1", "reason": "fan"}),
        ("drain_node", {"node": "local-1"}),
        ("set_project_quota", {"project": "vision", "limit": 8}),
        ("set_project_budget", {"project": "vision", "device_hours": 8}),
        ("set_member", {"project": "vision", "subject": "group:x", "role": "viewer"}),
        ("create_token", {"name": "new", "subject": "kim"}),
        ("revoke_token", {"token_id": token}),
        ("create_hook", {"project": "default", "name": "new", "url": "https://example.com/y"}),
        ("enable_hook", {"project": "default", "hook": hook["id"], "is_enabled": False}),
        ("rotate_hook_secret", {"project": "default", "hook": hook["id"]}),
        ("delete_hook", {"project": "default", "hook": hook["id"]}),
    ]
    async with connected(live) as agent:
        before = [each async for each in _changes(live)]
        for tool, arguments in requests:
            found = await agent.preview(tool, **arguments)
            assert "Nothing has changed" in found["note"], tool
            assert not found["result"].get("value") and not found["result"].get("secret"), f"{tool} shows a secret"
        assert [each async for each in _changes(live)] == before
    assert (await live.http.get(f"/v1/jobs/{job}")).json()["state"] == "QUEUED"
    assert len((await live.http.get("/v1/jobs")).json()["jobs"]) == 1


async def _changes(live: Any) -> AsyncIterator[Any]:
    for record in (await live.http.get("/v1/audit")).json()["records"]:
        yield record["id"]


async def test_a_confirmed_change_is_made_once(live: Any) -> None:
    job = (await live.submit())["id"]
    async with connected(live) as agent:
        preview = await agent.preview("cancel_job", job=job)
        assert preview["result"]["state"] == "CANCELLED"
        for _ in range(2):  # an agent whose connection broke sends it again
            done = await agent.read("cancel_job", job=job, confirm=preview["confirm"])
            assert done["result"]["state"] == "CANCELLED" and done["note"] == "The change was made."
    actions = [each["action"] for each in (await live.http.get("/v1/audit")).json()["records"]]
    assert actions.count("jobs.cancel") == 1


async def test_a_repeated_submission_with_one_confirm_creates_one_job(live: Any, make_spec: Any) -> None:
    async with connected(live) as agent:
        spec = make_spec(name="once")
        confirm = (await agent.preview("submit_job", spec=spec))["confirm"]
        first, second = [await agent.read("submit_job", spec=spec, confirm=confirm) for _ in range(2)]
        assert first["result"]["id"] == second["result"]["id"]
    assert len((await live.http.get("/v1/jobs")).json()["jobs"]) == 1


async def test_a_confirm_for_a_changed_object_is_refused(live: Any) -> None:
    await live.http.put("/v1/projects/vision", json={"limit": 8})
    async with connected(live) as agent:
        confirm = (await agent.preview("set_project_quota", project="vision", limit=16))["confirm"]
        await live.http.put("/v1/projects/vision", json={"limit": 9, "weight": 2.0})
        error = await agent.refused("set_project_quota", project="vision", limit=16, confirm=confirm)
        assert error["code"] == "precondition_failed" and "without `confirm`" in error["remedy"]
        found = (await live.http.get("/v1/projects/vision")).json()
        assert (found["limit"], found["weight"]) == (9, 2.0)
        await agent.change("set_project_quota", project="vision", limit=16)
    found = (await live.http.get("/v1/projects/vision")).json()
    assert (found["limit"], found["weight"]) == (16, 2.0)


async def test_a_confirm_for_an_object_that_appeared_since_is_refused(live: Any) -> None:
    live.cluster.add_node(Node("1" * 40, "local-1", "10.0.0.1", cpus=4, free_cpus=4))
    async with connected(live) as agent:
        confirm = (await agent.preview("drain_node", node="local-1", deadline_s=600))["confirm"]
        await live.http.post("/v1/nodes/local-1/drain", json={"deadline_s": 60, "reason": "power"})
        error = await agent.refused("drain_node", node="local-1", deadline_s=600, confirm=confirm)
        assert error["code"] == "precondition_failed"
    assert (await live.http.get("/v1/nodes/local-1/drain")).json()["reason"] == "power"


async def test_a_confirm_belongs_to_its_arguments_its_tool_and_its_caller(live: Any) -> None:
    first, second = [(await live.submit(name=name))["id"] for name in ("one", "two")]
    other = await token_of(live, "ana", "default", "admin")
    async with mcp_over_http(live.url) as url:
        async with agent_over_http(url, live.token) as agent:
            confirm = (await agent.preview("cancel_job", job=first))["confirm"]
            for tool, job in (("cancel_job", second), ("suspend_job", first)):
                error = await agent.refused(tool, job=job, confirm=confirm)
                assert error["code"] == "conflict" and "does not belong to this request" in error["message"]
        async with agent_over_http(url, other) as stranger:
            assert (await stranger.refused("cancel_job", job=first, confirm=confirm))["code"] == "conflict"
    assert {each["state"] for each in (await live.http.get("/v1/jobs")).json()["jobs"]} == {"QUEUED"}


async def test_a_viewer_reads_and_cannot_change(live: Any, make_spec: Any) -> None:
    job = (await live.submit())["id"]
    token = await token_of(live, "eve", "default", "viewer")
    async with connected(live, token) as agent:
        assert (await agent.read("get_job", job=job))["id"] == job
        refused: list[tuple[str, dict[str, Any]]] = [
            ("cancel_job", {"job": job}), ("suspend_job", {"job": job}), ("submit_job", {"spec": make_spec()}),
            ("resubmit_job", {"job": job}), ("resize_job", {"job": job, "dp": 1}),
            ("set_project_quota", {"project": "default", "limit": 1}), ("read_log", {"job": job}),
            ("set_member", {"project": "default", "subject": "eve", "role": "admin"}),
        ]  # fmt: skip
        for tool, arguments in refused:
            error = await agent.refused(tool, **arguments)
            assert error["code"] == "forbidden" and "eve" in error["message"], tool
    assert (await live.http.get(f"/v1/jobs/{job}")).json()["state"] == "QUEUED"


async def test_objects_of_other_projects_do_not_exist(live: Any) -> None:
    job = (await live.submit(project="speech"))["id"]
    async with connected(live, await token_of(live, "ana", "vision", "admin")) as agent:
        for tool in ("get_job", "explain_job", "cancel_job", "list_incidents"):
            assert (await agent.refused(tool, job=job))["code"] == "not_found"
        assert (await agent.read("list_jobs"))["jobs"] == []


async def test_a_command_is_offered_only_with_the_permission(live: Any) -> None:
    job = (await live.submit())["id"]
    await live.run(job)
    editor = await token_of(live, "ana", "default", "editor")
    permitted = await token_of(live, "ben", "default", "editor", "exec")
    async with mcp_over_http(live.url) as url:
        for token, is_offered in ((editor, False), (permitted, True), (live.token, True), ("rg_wrong", False)):
            async with agent_over_http(url, token) as agent:
                names = {tool.name for tool in (await agent.client.list_tools()).tools}
                assert ("run_command" in names) is is_offered and "get_job" in names
        async with agent_over_http(url, editor) as agent:  # a tool that is not offered can be called
            confirm = (await agent.preview("run_command", job=job, command=["true"]))["confirm"]
            error = await agent.refused("run_command", job=job, command=["true"], confirm=confirm)
            assert error["code"] == "forbidden" and live.cluster.orders == []
        async with agent_over_http(url, permitted) as agent:
            live.cluster.outputs = [("stdout", b"x" * 20_000), ("stderr", b"\xff"), {"code": 3, "why": "exited"}]
            done = await agent.change("run_command", job=job, command=["cat", "big"])
            assert (done["exit_code"], len(done["stdout"]), done["dropped_bytes"]) == (3, 16_384, 20_000 - 16_384)
    assert [each["command"] for each in live.cluster.orders] == [["cat", "big"]]


@pytest.mark.parametrize("code", [{"working_dir": "/etc"}, {"working_dir": "."}])
async def test_a_folder_of_the_servers_machine_is_never_uploaded(live: Any, make_spec: Any, code: Any) -> None:
    async with connected(live) as agent:
        for tool in ("submit_job", "validate_spec"):
            error = await agent.refused(tool, spec=make_spec(code=code))
            assert error["code"] == "invalid_spec" and error["fields"][0]["path"] == "code.working_dir"
