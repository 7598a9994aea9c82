"""The command usage: device-hours and their cost."""

import time
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table
from regroup.api.cli.common.times import parse_time

if TYPE_CHECKING:
    from regroup.api.client.operations.usage import GroupName
    from regroup.api.schemas.usage import UsageRow

By = Annotated[
    str, typer.Option("--by", metavar="GROUPS", help="Groups, separated by commas: project, user, class, job.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Use from then on: 7d (ago), or 2026-11-01T12:00.  [default: all]"),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Use before then.  [default: now]")]
OfProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        autocompletion=complete_project,
        help="Use of this project.  [default: all that you see]",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
_COLUMNS = {"project": ("project",), "user": ("user",), "class": ("accelerator",), "job": ("job", "job_name")}


def usage(
    by: By = "project",
    from_: From = None,
    to: To = None,
    project: OfProject = None,
    as_csv: AsCsv = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show the device-hours that jobs held in a window of time, and what they cost."""
    from regroup.api.cli.common.connection import connect

    now = time.time()
    groups = cast("list[GroupName]", by.split(","))
    window = {"from_s": parse_time("--from", from_, now), "to_s": parse_time("--to", to, now)}
    with connect(server) as client:
        if as_csv:
            print(client.usage_csv(groups, project=project, **window), end="")
            return
        found = list(client.usage(groups, project=project, **window))
    if as_json:
        print_json(found)
        return
    columns = [column for group in groups for column in _COLUMNS[group]]
    rows = [(*(str(getattr(row, name)) for name in columns), *_amounts(row)) for row in found]
    print_table((*(name.upper().replace("_", " ") for name in columns), "DEVICE-HOURS", "COST"), rows)
    if unpriced := sorted({name for row in found for name in row.unpriced if row.currency}):
        print_message(f"without price, and in no cost: {', '.join(unpriced)}")


def _amounts(row: "UsageRow") -> tuple[str, str]:
    cost = "-" if row.cost is None else f"{row.cost:,.2f} {row.currency}"
    is_partial = row.cost is not None and row.unpriced_device_hours > 0
    return f"{row.device_hours:,.2f}", f"{cost} + {row.unpriced_device_hours:,.2f} h" if is_partial else cost
