"""The command that serves agents: tools over the Model Context Protocol, and the skill file."""

from typing import Annotated

import typer

from regroup.api.cli.common.options import Server

Http = Annotated[bool, typer.Option("--http", help="Serve streamable HTTP instead of standard input and output.")]
Bind = Annotated[
    str | None,
    typer.Option(
        "--bind",
        metavar="HOST:PORT",
        help="Loopback address for --http.  [default: 127.0.0.1:8700]",
        show_default=False,
    ),
]
Skill = Annotated[bool, typer.Option("--skill", help="Print the skill file for agents, and exit.")]
_DEFAULT_BIND = "127.0.0.1:8700"
_MAX_PORT = 65535


def mcp(http: Http = False, bind: Bind = None, skill: Skill = False, server: Server = None) -> None:
    """Serve tools for agents over the Model Context Protocol, until the client leaves.

    On standard input and output, with your profile and token. With --http, each request brings its own token.
    """
    if skill:
        from regroup.api.mcp.skill import read_skill

        print(read_skill(), end="")
        return
    if bind is not None and not http:
        raise typer.BadParameter("--bind: needs --http; standard input and output have no address")
    _require_sdk()
    if http:
        from regroup.api.mcp.http import serve_http

        host, port = _parse(bind or _DEFAULT_BIND)
        serve_http(server, host, port)
    else:
        from regroup.api.mcp.stdio import serve_stdio

        serve_stdio(server)


def _require_sdk() -> None:
    """Check that the MCP SDK is installed.

    Raises:
        UnavailableError: it is not.
    """
    from importlib.util import find_spec

    from regroup.service.domain.errors import UnavailableError

    if find_spec("mcp") is None:
        raise UnavailableError("the MCP SDK is not installed; install it with: pip install 'regroup[mcp]'")


def _parse(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) <= _MAX_PORT:
        raise typer.BadParameter(f"--bind: must be HOST:PORT, for example {_DEFAULT_BIND} (got {bind!r})")
    return host.removeprefix("[").removesuffix("]"), int(port)
