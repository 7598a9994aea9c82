"""Commands of `regroup token`: create, list and revoke tokens of the API."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table

if TYPE_CHECKING:
    from regroup.api.schemas.identities import Token

app = typer.Typer(
    cls=GroupedCommands,
    help="Create, list and revoke tokens of the API; see docs/operations/access.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Description of the token, for people.")]
Subject = Annotated[
    str | None,
    typer.Option("--for", metavar="IDENTITY", help="Person or service account that the token proves.  [default: you]"),
]
OnlyProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        autocompletion=complete_project,
        help="The only project in which the token is valid.  [default: all of its identity]",
    ),
]
HighestRole = Annotated[
    str | None,
    typer.Option(
        "--role", metavar="ROLE", help="Highest role: viewer, editor or admin.  [default: those of its identity]"
    ),
]
Expiry = Annotated[
    str, typer.Option("--expires", metavar="TIME", help="Time until the token is refused, for example 12h or 30d.")
]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="Id of the token, as `regroup token list` shows it.")]


def token_create(
    name: Name,
    subject: Subject = None,
    project: OnlyProject = None,
    role: HighestRole = None,
    expires: Expiry = "90d",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown only now."""
    issued = run_action(
        server,
        lambda client: client.create_token(name, subject=subject, project=project, role=role, expires_in_s=expires),
        lambda token: token.value,
        as_json=as_json,
    )
    if not as_json:
        print_message(
            f"token {issued.id} of {issued.subject}, until {_time(issued.expires_at)}; it is not shown again. "
            "Set REGROUP_TOKEN to it, or write it to a private file and set REGROUP_TOKEN_FILE"
        )


def token_list(subject: Subject = None, server: Server = None, as_json: AsJson = False) -> None:
    """List tokens with their last use, the newest first."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.tokens(subject=subject)
    if as_json:
        print_json(found)
        return
    now = time.time()
    rows = [
        (
            each.id, each.subject, each.name, each.project or "all", each.role or "all", _state(each, now),
            _time(each.expires_at), _time(each.used_at),
        )
        for each in found
    ]  # fmt: skip
    print_table(("TOKEN", "IDENTITY", "NAME", "PROJECT", "ROLE", "STATE", "EXPIRES", "LAST USED"), rows)


def token_revoke(token: TokenId, server: Server = None, as_json: AsJson = False) -> None:
    """Revoke a token. Requests with it are refused at once."""
    run_action(
        server,
        lambda client: client.revoke_token(token),
        lambda found: f"token {found.id} of {found.subject} is revoked",
        as_json=as_json,
    )


def _state(token: "Token", now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


_VERBS = {"create": token_create, "list": token_list, "revoke": token_revoke}
for _name, _verb in _VERBS.items():
    app.command(_name)(_verb)
