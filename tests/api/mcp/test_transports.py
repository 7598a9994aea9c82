"""Both transports of the MCP server: start, identity, checks of hosts and origins, limits."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from mcp_types import TextContent, TextResourceContents

from regroup.api.cli.common import exit_codes
from regroup.api.cli.main import main
from regroup.api.mcp.http import MAX_BODY_BYTES, check_bind
from regroup.api.mcp.server import INSTRUCTIONS
from regroup.api.mcp.skill import read_skill
from regroup.service.domain.errors import SettingError
from tests.support.servers.mcp_agents import COMMAND, Agent, agent_over_http, agent_over_stdio, mcp_over_http

INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def test_an_agent_discovers_tools_resources_and_prompts_over_stdio(live: Any) -> None:
    async with agent_over_stdio(live.url, live.token) as agent:
        assert agent.client.instructions == INSTRUCTIONS
        assert {"explain_job", "run_command"} <= {tool.name for tool in (await agent.client.list_tools()).tools}
        listed = {str(each.uri) for each in (await agent.client.list_resources()).resources}
        assert listed == {"regroup://spec/schema", "regroup://skill"}
        assert await text_of(agent, "regroup://skill") == read_skill()
        assert json.loads(await text_of(agent, "regroup://spec/schema"))["properties"]["workload"]
        job = (await live.submit())["id"]
        assert json.loads(await text_of(agent, f"regroup://jobs/{job}/spec"))["name"] == "gpt"
        prompts = {each.name for each in (await agent.client.list_prompts()).prompts}
        assert prompts == {"rescue_job", "drain_rack", "close_month"}
        prompt = await agent.client.get_prompt("rescue_job", {"job": "gpt"})
        content = prompt.messages[0].content
        assert isinstance(content, TextContent) and "regroup job gpt waits" in content.text
        for uri in ("regroup://jobs/none/spec", "regroup://jobs/none/incidents/1/evidence", "file:///etc/passwd"):
            with pytest.raises(MCPError, match=r"no job|no resource"):
                await agent.client.read_resource(uri)
        with pytest.raises(MCPError, match="needs job"):
            await agent.client.get_prompt("rescue_job", {})


async def text_of(agent: Agent, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await agent.client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_the_server_on_stdio_ends_with_its_input(live: Any) -> None:
    environment = {**os.environ, "REGROUP_TOKEN": live.token}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--server", live.url, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )
    assert process.stdin and process.stdout
    process.stdin.write(b"this is not JSON\n" + json.dumps(INITIALIZE).encode() + b"\n")
    answers = [json.loads(await asyncio.wait_for(process.stdout.readline(), 20))]
    while "result" not in answers[-1]:
        answers.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 20)))
    assert answers[-1]["result"]["serverInfo"]["name"] == "regroup"
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_each_request_over_http_has_the_rights_of_its_own_token(live: Any) -> None:
    await live.http.post("/v1/identities", json={"subject": "ana", "kind": "user"})
    token = (await live.http.post("/v1/tokens", json={"name": "a", "subject": "ana"})).json()["value"]
    async with mcp_over_http(live.url) as url:
        async with agent_over_http(url, token) as ana, agent_over_http(url, live.token) as owner:
            assert (await ana.read("show_identity"))["subject"] == "ana"
            assert (await owner.read("show_identity"))["everywhere"] == "admin"
            assert (await ana.read("list_jobs"))["jobs"] == []
        for wrong in (None, "rg_wrong"):
            async with agent_over_http(url, wrong) as stranger:
                error = await stranger.refused("list_jobs")
                assert error["code"] == "unauthorized" and "Authorization" in error["remedy"]


async def test_requests_of_other_hosts_and_origins_are_refused(live: Any) -> None:
    async with mcp_over_http(live.url) as url, httpx2.AsyncClient(trust_env=False) as http:
        token = {**ACCEPT, "Authorization": f"Bearer {live.token}"}
        accepted = await http.post(url, json=INITIALIZE, headers=token)
        assert accepted.status_code == 200, accepted.text
        own = url.removesuffix("/mcp").replace("127.0.0.1", "localhost")
        accepted = await http.post(url, json=INITIALIZE, headers={**token, "Origin": own, "Host": own[7:]})
        assert accepted.status_code == 200, accepted.text
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "http://127.0.0.1.evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://127.0.0.1:3000"}, 403),
            ({"Origin": "http://localhost"}, 403),
            ({"Host": "evil.example"}, 421),
            ({"Host": "127.0.0.1.evil.example:80"}, 421),
            ({"Host": "127.0.0.1:3000"}, 421),
        ):
            answer = await http.post(url, json=INITIALIZE, headers={**token, **headers})
            assert answer.status_code == status, headers
        large = await http.post(
            url, content=b" " * (MAX_BODY_BYTES + 1), headers={**token, "Content-Type": "application/json"}
        )
        assert large.status_code == 413


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "", "127.0.0.1.nip.io"])
def test_an_address_that_others_reach_is_refused_with_the_reason(host: str) -> None:
    with pytest.raises(SettingError, match="must be a loopback address, because tokens would cross the network"):
        check_bind(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_is_accepted(host: str) -> None:
    check_bind(host)


async def test_the_command_serves_http_and_prints_its_address(live: Any) -> None:
    pipe = asyncio.subprocess.PIPE
    arguments = ("--http", "--bind", "127.0.0.1:0", "--server", live.url)
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=pipe, stderr=pipe)
    try:
        assert process.stderr
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        assert line.startswith("serving MCP at http://127.0.0.1:"), line
        async with agent_over_http(line.split()[-1], live.token) as agent:
            assert (await agent.read("show_identity"))["everywhere"] == "admin"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


# ------------------------------------------------------------ the command line


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_command_prints_the_skill_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mcp", "--skill") == 0
    assert capsys.readouterr().out == read_skill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bind", "127.0.0.1:1"), "--bind: needs --http"),
        (("--http", "--bind", "127.0.0.1"), "--bind: must be HOST:PORT"),
        (("--http", "--bind", "127.0.0.1:70000"), "--bind: must be HOST:PORT"),
        (("--http", "--bind", "0.0.0.0:8700"), "must be a loopback address"),
    ],
)
def test_a_wrong_address_is_a_usage_error(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("mcp", *arguments) == exit_codes.USAGE
    assert message in capsys.readouterr().err


def test_without_a_server_the_command_tells_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGROUP_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("REGROUP_SERVER", raising=False)
    assert run("mcp") == 5 and "regroup serve" in capsys.readouterr().err


def test_without_the_sdk_the_command_tells_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    assert run("mcp") == 5
    assert "pip install 'regroup[mcp]'" in capsys.readouterr().err
