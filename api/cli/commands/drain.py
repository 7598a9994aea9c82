"""The verb that has a node empty: drain."""

import time
from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, say

Node = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, or its id.")]
Deadline = Annotated[
    str, typer.Option("--deadline", metavar="TIME", help="Empty within this, e.g. 120s or 15m: then it may be gone.")
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown with every job that moves.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when nobody is left on it; exit 0 only if that came about.")]


def drain(
    node: Node,
    deadline: Deadline = "10m",
    reason: Why = "on request",
    wait: Wait = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Have a node empty: its jobs go on elsewhere from where they stand, or save their last step and queue."""
    from regroup.api.client.discovery import connect
    from regroup.service.domain.errors import RegroupError

    with connect(server, patient=wait) as client:
        found = client.drain(node, deadline_s=deadline, reason=reason)
        if wait and found.jobs:
            if not as_json:
                say(f"{found.node} holds {', '.join(found.jobs)}; waiting")
            found = client.wait_for_drain(found.node_id)
    jobs, until = ", ".join(found.jobs), time.strftime("%H:%M:%S", time.localtime(found.deadline_at))
    if as_json:
        print_json(found)
    elif found.jobs:
        print(f"{found.node} is drained until {until}; it still holds {jobs}")
    else:
        print(f"{found.node} is empty, and nothing new is placed there")
    if wait and found.jobs:
        raise RegroupError(f"node {found.node} was to be empty by {until}, and still holds {jobs}")


def undrain(node: Node, server: Server = None) -> None:
    """End the drain of a node, so that it accepts ranks again."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        client.undrain(node)
    print(f"{node} accepts ranks again")
