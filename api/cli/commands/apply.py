"""The command apply: bring identities, projects, members, secrets and hooks into the state of a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json

if TYPE_CHECKING:
    from regroup.api.schemas.setup import Setup

File = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON; see docs/operations/apply.md.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Also remove members of the file's projects that the file does not list.")
]
ReplaceSecrets = Annotated[
    bool,
    typer.Option("--replace-secrets", help="Also set the secrets of the file that exist, and those of hooks."),
]


def apply(
    file: File,
    prune: Prune = False,
    replace_secrets: ReplaceSecrets = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Create or change identities, projects, members, secrets and hooks as a file states. A repetition changes nothing.

    `regroup --dry-run apply` shows the changes without making them.
    """
    from regroup.api.cli.common.connection import connect

    setup = read_setup(file)
    with connect(server) as client:
        steps = client.apply(setup, prune=prune, replace_secrets=replace_secrets)
    if as_json:
        print_json(
            [{"action": step.action, "kind": step.kind, "name": step.name, "details": step.details} for step in steps]
        )
        return
    for step in steps:
        print(step)
    print(f"{len(steps)} change{'' if len(steps) == 1 else 's'}" if steps else "nothing to change")


def read_setup(file: Path) -> "Setup":
    """Read a file for `regroup apply`.

    Raises:
        SpecError: the file cannot be read, or a field is invalid; the message names the field.
    """
    from pydantic import ValidationError

    from regroup.api.cli.spec_input.spec_file import read_document
    from regroup.api.schemas.setup import Setup
    from regroup.service.domain.errors import SpecError
    from regroup.service.spec.issues import find_issues

    data = read_document(file)
    try:
        return Setup.model_validate(data)
    except ValidationError as error:
        raise SpecError(find_issues(error, data)) from error
