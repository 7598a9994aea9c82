"""Commands of `regroup secret`: secrets of a project, and the key of the server. No command shows a value."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table
from regroup.api.cli.common.secret_input import read_secret

if TYPE_CHECKING:
    from regroup.api.schemas.secrets import Reencryption, Secret

app = typer.Typer(
    cls=GroupedCommands,
    help="Set, list and delete secrets of a project, which jobs get as variables; see docs/guides/secrets.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret, for example hf-token.")]
Project = Annotated[
    str,
    typer.Option(
        "--project", metavar="NAME", autocompletion=complete_project, help="Project whose jobs may use the secret."
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option("--from-file", metavar="FILE", help="File with the value.  [default: standard input, or a prompt]"),
]


def secret_set(
    name: Name,
    project: Project = "default",
    from_file: FromFile = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Create a secret, or replace its value. The value is standard input or a file, without line ends at its end.

    Jobs name it in their spec as `secrets: {VARIABLE: {from_project: NAME}}`.
    """
    value = read_secret(from_file, "--from-file")
    run_action(server, lambda client: client.set_secret(project, name, value), _describe, as_json=as_json)


def secret_list(project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """List the secrets of a project, without their values."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.secrets(project)
    if as_json:
        print_json(found)
        return
    rows = [
        (each.name, str(each.version), _time(each.updated_at), each.updated_by, _time(each.used_at)) for each in found
    ]
    print_table(("SECRET", "VERSION", "SET", "BY", "LAST USED"), rows)


def secret_delete(name: Name, project: Project = "default", server: Server = None) -> None:
    """Delete a secret. Jobs that use it wait before they start. Ranks that run keep its value."""
    run_action(server, lambda client: client.delete_secret(project, name), lambda _: f"{name} deleted", as_json=False)


def secret_rotate_key(server: Server = None, as_json: AsJson = False) -> None:
    """Encrypt all stored secrets with the first key of the server's key file. For operators.

    The exit code is 1 if the server does not have the key of some of them; see docs/operations/secrets.md.
    """
    found = run_action(server, lambda client: client.reencrypt_secrets(), _describe_reencryption, as_json=as_json)
    if found.unreadable or not found.is_complete:
        raise typer.Exit(1)


def _describe(secret: "Secret") -> str:
    return f"{secret.name} of project {secret.project}: version {secret.version}"


def _describe_reencryption(done: "Reencryption") -> str:
    text = f"key {done.key_id}: encrypted {done.encrypted} value{'' if done.encrypted == 1 else 's'}"
    if done.unreadable:
        text += f"; the server does not have the key of {done.unreadable}: add it to the key file, or set them again"
    return text if done.is_complete else f"{text}; more follow: repeat the command"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


_VERBS = {"set": secret_set, "list": secret_list, "delete": secret_delete, "rotate-key": secret_rotate_key}
for _name, _verb in _VERBS.items():
    app.command(_name)(_verb)
