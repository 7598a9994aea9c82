"""Agents of tests: the client of the MCP SDK, connected to the MCP server over a real transport."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from regroup.api.mcp.http import PATH, create_app

COMMAND = (sys.executable, "-m", "regroup.api.cli", "mcp")


@dataclass(frozen=True)
class Agent:
    """A connected client, with the steps that agents repeat."""

    client: Client

    async def read(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must succeed, and return its answer."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content["answer"]

    async def preview(self, tool: str, **arguments: Any) -> Any:
        """Return the preview of a change."""
        found = await self.read(tool, **arguments)
        assert found["is_done"] is False and found["confirm"], found
        return found

    async def change(self, tool: str, **arguments: Any) -> Any:
        """Preview a change, confirm it, and return the object after it."""
        confirm = (await self.preview(tool, **arguments))["confirm"]
        done = await self.read(tool, **arguments, confirm=confirm)
        assert done["is_done"] is True and done["confirm"] is None, done
        return done["result"]

    async def refused(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must fail, and return its error, which the text repeats."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        error = result.structured_content["error"]
        (content,) = result.content
        assert isinstance(content, TextContent) and error["code"] in content.text
        assert all(field["path"] in content.text for field in error["fields"])
        return error


@asynccontextmanager
async def agent_over_stdio(url: str, token: str) -> AsyncIterator[Agent]:
    """Start `regroup mcp` for a server, with a token, as a client does, and connect to it."""
    async with agent_of_user({"REGROUP_TOKEN": token, "REGROUP_SERVER": url}) as agent:
        yield agent


@asynccontextmanager
async def agent_of_user(environment: Mapping[str, str]) -> AsyncIterator[Agent]:
    """Start `regroup mcp` with variables of a user, and connect to it. It finds the server and the token by itself."""
    program, *arguments = COMMAND
    server = StdioServerParameters(command=program, args=arguments, env=dict(environment))
    async with Client(stdio_client(server)) as client:
        yield Agent(client)


@asynccontextmanager
async def mcp_over_http(url: str) -> AsyncIterator[str]:
    """Serve the application of `regroup mcp --http` in this process; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = _QuietServer(uvicorn.Config(create_app(url, "127.0.0.1", port), log_config=None, ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.wait_for(server.up.wait(), 20)
        yield f"http://127.0.0.1:{port}{PATH}"
        server.should_exit = True
        await serving


@asynccontextmanager
async def agent_over_http(mcp_url: str, token: str | None) -> AsyncIterator[Agent]:
    """Connect to an MCP server with a token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30.0) as http,
        Client(streamable_http_client(mcp_url, http_client=http)) as client,
    ):
        yield Agent(client)


class _QuietServer(uvicorn.Server):
    """A server that signals when it has started, and leaves signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
