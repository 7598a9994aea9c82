"""The command reliability: interruptions of jobs, their causes and their cost."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table
from regroup.api.cli.common.times import parse_time

if TYPE_CHECKING:
    from regroup.api.schemas.reports.reliability import Reliability, Spread

From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Incidents from then on: 7d (ago), or 2026-11-01T12:00.  [default: 30d]"
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Incidents before then.  [default: now]")]
OfProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        autocompletion=complete_project,
        help="Jobs of this project.  [default: all that you see]",
    ),
]


def reliability(
    from_: From = None, to: To = None, project: OfProject = None, server: Server = None, as_json: AsJson = False
) -> None:
    """Show how often jobs were interrupted, for how long, why, what it cost, and which nodes failed."""
    from regroup.api.cli.common.connection import connect

    now = time.time()
    window = {"from_s": parse_time("--from", from_, now), "to_s": parse_time("--to", to, now)}
    with connect(server) as client:
        found = client.reliability(project=project, **window)
    if as_json:
        print_json(found)
        return
    _print_summary(found)
    causes = [
        (
            each.reason,
            "planned" if each.is_planned else "failure",
            str(each.incidents),
            *_times(each.recovery),
            str(each.steps_lost),
            f"{each.lost_device_hours:,.2f}",
        )
        for each in found.causes
    ]
    print_table(("CAUSE", "KIND", "INCIDENTS", "MEAN", "P95", "STEPS LOST", "LOST DEVICE-HOURS"), causes)
    print()
    print_table(
        ("PHASE", "TIMES", "MEAN", "P95"),
        [(each.phase.replace("_", " "), str(each.count), *_times(each)) for each in found.phases],
    )
    if found.nodes:
        print()
        rows = [
            (each.node, str(sum(each.faults.values())), ", ".join(f"{kind} {n}" for kind, n in each.faults.items()))
            for each in found.nodes
        ]
        print_table(("NODE", "FAULTS", "KINDS"), rows)
    if found.is_partial:
        print_message("the window has more incidents or jobs than one report reads: choose a shorter one")


def _print_summary(found: "Reliability") -> None:
    goodput = "unknown" if found.goodput is None else f"{100 * found.goodput:.1f} %"
    mean, _ = _times(found.recovery)
    print(f"{found.failures} failures, {found.incidents - found.failures} planned changes; mean recovery {mean}")
    print(
        f"goodput {goodput}; {found.lost_device_hours:,.2f} of {found.device_hours:,.2f} device-hours lost in incidents"
    )
    print()


def _times(spread: "Spread | None") -> tuple[str, str]:
    return ("-", "-") if spread is None else (f"{spread.mean_s:,.2f} s", f"{spread.p95_s:,.2f} s")
