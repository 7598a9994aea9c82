"""Verbs for nodes: nodes, cordon, uncordon."""

from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as `regroup nodes` shows it.")]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Text shown with the node and with jobs that wait for it.")
]


def nodes(server: Server = None, as_json: AsJson = False) -> None:
    """List nodes: what is free, which jobs are there, and whether new ranks are placed on them."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        found = client.nodes()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each.name,
            each.address or "gone",
            f"{each.free_cpus:g}/{each.cpus:g}",
            f"{each.free_gpus:g}/{each.gpus:g}",
            ", ".join(f"{job.name} ({job.ranks})" for job in each.jobs) or "-",
            each.health.status,
            f"{each.health.score:.1f}",
            each.health.why or (f"kept ready for project {each.kept_for}" if each.kept_for else "-"),
        )
        for each in found
    ]
    print_table(("NODE", "ADDRESS", "CPUS FREE", "GPUS FREE", "JOBS (RANKS)", "HEALTH", "SCORE", "WHY"), rows)


def cordon(node: NodeName, reason: Reason = "", server: Server = None, as_json: AsJson = False) -> None:
    """Place nothing new on a node until it is uncordoned. Jobs that run there run on."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        closed = client.cordon(node, reason=reason)
    if as_json:
        print_json(closed)
        return
    left = ", ".join(job.name for job in closed.jobs)
    print(f"{closed.name} gets no new ranks" + (f"; {left} runs on there" if left else ""))


def uncordon(node: NodeName, reason: Reason = "", server: Server = None, as_json: AsJson = False) -> None:
    """Trust a node again that was cordoned or quarantined, and forgive what happened to it."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        before = {each.name: each.health for each in client.nodes()}
        opened = client.uncordon(node, reason=reason)
    if as_json:
        print_json(opened)
        return
    health = before.get(opened.name)
    was = "" if health is None or health.status == "open" else f"; it was {health.why}"
    print(f"{opened.name} takes ranks again{was}" if was else f"{opened.name} takes ranks")
