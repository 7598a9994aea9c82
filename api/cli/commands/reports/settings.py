"""The command settings: the effective settings of a server."""

import json
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table

Changed = Annotated[bool, typer.Option("--changed", help="Only settings whose value is not the default.")]


def settings(changed: Changed = False, server: Server = None, as_json: AsJson = False) -> None:
    """Show the effective settings of the server, with the source of each value. Secrets are not shown."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = [each for each in client.server_settings() if not changed or each.source != "default"]
    if as_json:
        print_json(found)
        return
    rows = [(each.variable, "(secret)" if each.is_secret else _text(each.value), each.source) for each in found]
    print_table(("VARIABLE", "VALUE", "SOURCE"), rows)


def _text(value: object) -> str:
    return "-" if value is None or value == "" else value if isinstance(value, str) else json.dumps(value)
