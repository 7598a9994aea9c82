"""The MCP server on standard input and output, with the profile and the token of the user who started it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from mcp.server.stdio import stdio_server

from regroup.api.client.discovery import connect_async
from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.confirmation import Confirmations
from regroup.api.mcp.server import Context, create_server


def serve_stdio(server: str | None) -> None:
    """Serve one client until it closes standard input.

    Args:
        server: URL of the API; None for that of the current profile, else for the server of this machine.

    Raises:
        UnavailableError: no server was given, and none was started on this machine.
    """
    client = connect_async(server)
    caller = Caller(client, "", Confirmations())

    @asynccontextmanager
    async def identify(_: Context) -> AsyncGenerator[Caller]:
        yield caller

    async def serve() -> None:
        application = create_server(identify)
        async with client, stdio_server() as (incoming, outgoing):
            await application.run(incoming, outgoing, application.create_initialization_options())

    anyio.run(serve)
