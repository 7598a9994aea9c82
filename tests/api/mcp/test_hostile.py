"""Arguments that no honest agent sends, and answers that are too large."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError
from pydantic import ValidationError

from regroup.api.mcp.calls.bounds import MAX_BYTES
from regroup.api.mcp.catalog import TOOLS
from tests.support.servers.mcp_agents import Agent, agent_over_http, mcp_over_http

MOST_BYTES = 2 * MAX_BYTES + 20_000
"""Largest answer of a tool: the structured answer, the same as text, and what surrounds both."""
HOSTILE: list[Any] = [
    None, "", "\x00", "../../etc/passwd", "a" * 100_000, "?dry_run=false#", "%2e%2e%2f", "‮", "'; DROP TABLE jobs;--",
    -1, 0, 2**63, 1e308, True, [], [[]] * 1000, {}, {"a": {"b": ["c"] * 500}}, {"self": 1, "__class__": 2},
]  # fmt: skip


VALID: dict[str, Any] = {
    "job": "gpt", "first": "gpt", "second": "gpt", "number": 1, "spec": {}, "step": 1, "command": ["true"], "node": "a",
    "reason": "r", "level": "rack", "domain": "d", "project": "p", "hook": "h", "name": "n", "delivery": 1,
    "subject": "ana", "role": "viewer", "token_id": "t", "question": {},
    "text": "t", "scenario": {},
}  # fmt: skip
"""A valid value of each required argument."""


@asynccontextmanager
async def connected(live: Any) -> AsyncIterator[Agent]:
    async with mcp_over_http(live.url) as url, agent_over_http(url, live.token) as agent:
        yield agent


async def test_no_value_of_any_argument_breaks_a_tool(live: Any) -> None:
    await live.submit()
    async with connected(live) as agent:
        reached = 0
        for tool in TOOLS:
            fields = tool.arguments.model_fields
            valid = {name: VALID[name] for name, field in fields.items() if field.is_required()}
            await _call(agent, tool.name, {name: [[]] for name in fields})
            for name, value in itertools.product(fields, HOSTILE):
                arguments = {**valid, name: value}
                with contextlib.suppress(ValidationError):  # the schema refuses most values
                    tool.arguments.model_validate(arguments)
                    await _call(agent, tool.name, arguments)
                    reached += 1
        assert reached > 300
    assert len((await live.http.get("/v1/jobs")).json()["jobs"]) == 1
    assert (await live.http.get("/readyz")).status_code == 200


async def _call(agent: Agent, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool; its error, if there is one, must be one that the API or the tool intends."""
    result = await agent.client.call_tool(tool, arguments)
    if result.is_error:
        code = result.structured_content["error"]["code"]
        assert code not in ("internal", "error"), (tool, str(arguments)[:500], result.content)


async def test_an_unknown_argument_is_refused_and_named(live: Any) -> None:
    job = (await live.submit())["id"]
    async with connected(live) as agent:
        error = await agent.refused("cancel_job", job=job, confrim="x")  # codespell:ignore confrim
        assert error["code"] == "invalid_arguments"
        assert error["fields"] == [{"path": "confrim", "message": "unknown field"}]  # codespell:ignore confrim
        error = await agent.refused("list_jobs", limit=10**6, states=["RUNING"])  # codespell:ignore runing
        assert {each["path"] for each in error["fields"]} == {"limit", "states.0"}


async def test_an_unknown_tool_is_refused(live: Any) -> None:
    async with connected(live) as agent:
        try:
            result = await agent.client.call_tool("drop_everything", {})
        except MCPError as error:
            assert "drop_everything" in str(error)
        else:
            assert result.is_error


async def test_names_with_slashes_stay_names(live: Any) -> None:
    async with connected(live) as agent:
        for name in ("../projects", "a/../../v1/me", "x?project=y", "gpt%2Fcancel", ".", ".."):
            error = await agent.refused("get_job", job=name)
            assert error["code"] in ("not_found", "invalid_request"), error
        with pytest.raises(MCPError, match=r"no resource|no job|Not found|Invalid"):
            await agent.client.read_resource("regroup://jobs/..%2Fprojects/spec")


async def test_large_answers_are_bounded_and_name_what_they_leave_out(live: Any) -> None:
    job = (await live.submit(name="wide", labels={f"label-{number}": "x" * 60 for number in range(20)}))["id"]
    await live.run(job)
    live.cluster.running[job] = {
        str(rank): {"text": "frame\n" * 5000, "node": "a", "pid": 1, "place": None} for rank in range(64)
    }
    live.cluster.logs[job, 1, 0, "stdout"] = "\x1b[0m" * 50_000
    fields = {"cause": "c" * 2000, "generation": 1, "at_step": 1, "times": {}, "durations": {}}
    incidents = [("incident", 1, {"id": f"i{number}", **fields}) for number in range(150)]
    await live.report(job, *incidents)
    error = {"kind": "ValueError", "message": "m" * 5000, "traceback": "t" * 200_000}
    await live.report(job, ("state", 1, {"state": "FAILED", "reason": "user_error", "message": "", "error": error}))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_job", {}), ("explain_job", {}), ("list_incidents", {"limit": 100}), ("list_events", {"limit": 100}),
        ("get_stacks", {"ranks": list(range(16))}), ("read_log", {"max_bytes": 24_000}), ("get_job_spec", {}),
    ]  # fmt: skip
    async with connected(live) as agent:
        cut = set[str]()
        for tool, arguments in calls:
            result = await agent.client.call_tool(tool, {"job": job, **arguments})
            assert not result.is_error, result.content
            assert len(result.model_dump_json()) <= MOST_BYTES, tool
            if result.structured_content["left_out"]:
                cut.add(tool)
        assert {"explain_job", "list_incidents", "get_stacks", "list_events"} <= cut and "read_log" not in cut
        log = await agent.read("read_log", job=job, max_bytes=24_000)
        assert log["next_offset"] == len(log["text"].encode()), "no output between two parts is lost"


async def test_an_error_with_many_fields_is_bounded(live: Any) -> None:
    async with connected(live) as agent:
        error = await agent.refused("submit_job", spec={f"field_{number}": number for number in range(150)})
        assert error["code"] == "invalid_spec" and len(error["fields"]) == 20
        assert len(json.dumps(error)) < 10_000
