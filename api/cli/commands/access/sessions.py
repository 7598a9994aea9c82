"""The command console, which signs a browser in, and those of `regroup sessions`: list and end sessions of browsers."""

import time
from typing import Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table

app = typer.Typer(
    cls=GroupedCommands,
    help="List and end the sessions of browsers; see docs/operations/access.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the link, but open no browser.")]
Page = Annotated[
    str, typer.Argument(metavar="[PAGE]", help="Page to open, for example `jobs/ID/story`.  [default: the overview]")
]
Subject = Annotated[
    str | None,
    typer.Option("--of", metavar="IDENTITY", help="Only sessions of this person.  [default: all you see]"),
]
SessionId = Annotated[
    str, typer.Argument(metavar="SESSION", help="Id of the session, as `regroup sessions list` shows it.")
]


def console(page: Page = "", no_browser: NoBrowser = False, server: Server = None, as_json: AsJson = False) -> None:
    """Open the console in a browser and sign in, with a link that is valid once and for ten minutes."""
    import webbrowser

    from regroup.api.cli.common.connection import connect
    from regroup.api.client.connection.address import socket_path
    from regroup.api.client.console_link import console_link
    from regroup.service.domain.errors import ForbiddenError

    with connect(server) as client:
        if socket_path(client.url) is not None:
            raise ForbiddenError(f"browsers cannot connect to {client.url}; let the server listen on an address")
        link = client.session_link()
    url = console_link(client.url, link, page)
    if as_json:
        print_json({"url": url, "expires_at": link.expires_at})
        return
    print(url)
    if no_browser or not webbrowser.open(url):
        print_message(f"open this link in a browser until {_time(link.expires_at)}; it works once")


def sessions_list(subject: Subject = None, server: Server = None, as_json: AsJson = False) -> None:
    """List the browsers that are signed in, the newest first."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.sessions(subject=subject)
    if as_json:
        print_json(found)
        return
    rows = [
        (each.id, each.subject, each.address, _time(each.created_at), _time(each.expires_at), _time(each.used_at),
         each.agent)
        for each in found
    ]  # fmt: skip
    print_table(("SESSION", "IDENTITY", "ADDRESS", "SIGNED IN", "EXPIRES", "LAST USED", "BROWSER"), rows)


def sessions_revoke(session: SessionId, server: Server = None) -> None:
    """End a session. Requests of its browser are refused at once."""
    run_action(
        server,
        lambda client: client.revoke_session(session),
        lambda _: f"session {session} has ended",
        as_json=False,
    )


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


app.command("list")(sessions_list)
app.command("revoke")(sessions_revoke)
