"""The commands nodes, clusters, cordon and uncordon."""

from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.options import Node as NodeName
from regroup.api.cli.common.output import print_json, print_table

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.nodes import Node, NodeHealth

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Text shown with the node and with jobs that wait for it.")
]


def nodes(server: Server = None, as_json: AsJson = False) -> None:
    """List the nodes: free capacity, jobs, health."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.nodes()
    if as_json:
        print_json(found)
        return
    has_several = len({each.cluster for each in found if each.cluster}) > 1
    rows = [
        (
            each.name,
            *([each.cluster or "-"] if has_several else []),
            each.address or "gone",
            f"{each.free_cpus:g}/{each.cpus:g}",
            f"{each.free_gpus:g}/{each.gpus:g}",
            ", ".join(f"{job.name} ({job.ranks})" for job in each.jobs) or "-",
            each.health.status,
            f"{each.health.score:.1f}",
            each.health.why or (f"spare of project {each.spare_for}" if each.spare_for else "-"),
        )
        for each in found
    ]
    names = ("NODE", *(["CLUSTER"] if has_several else []), "ADDRESS", "CPUS FREE", "GPUS FREE", "JOBS (RANKS)",
             "HEALTH", "SCORE", "WHY")  # fmt: skip
    print_table(names, rows)


def clusters(server: Server = None, as_json: AsJson = False) -> None:
    """List the clusters that jobs can name: free capacity, and why one does not answer."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.clusters()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            f"{each.name} (default)" if each.is_default else each.name,
            str(each.nodes),
            f"{each.free_cpus:g}/{each.cpus:g}",
            f"{each.free_gpus:g}/{each.gpus:g}",
            "answers" if each.answers else each.problem,
        )
        for each in found
    ]
    print_table(("CLUSTER", "NODES", "CPUS FREE", "GPUS FREE", "STATE"), rows)


def cordon(node: NodeName, reason: Reason = "", server: Server = None, as_json: AsJson = False) -> None:
    """Place nothing new on a node until it is uncordoned. Running jobs continue."""

    def describe(closed: "Node") -> str:
        running = ", ".join(job.name for job in closed.jobs)
        return f"{closed.name} cordoned" + (f"; still running: {running}" if running else "")

    run_action(server, lambda client: client.cordon(node, reason=reason), describe, as_json=as_json)


def uncordon(node: NodeName, reason: Reason = "", server: Server = None, as_json: AsJson = False) -> None:
    """End the cordon or quarantine of a node and clear its faults."""
    before: dict[str, NodeHealth] = {}

    def call(client: "Client") -> "Node":
        before.update({each.name: each.health for each in client.nodes()})
        return client.uncordon(node, reason=reason)

    def describe(opened: "Node") -> str:
        health = before.get(opened.name)
        was = "" if health is None or health.status == "open" else f" (it was {health.why})"
        return f"{opened.name} accepts ranks{was}"

    run_action(server, call, describe, as_json=as_json)
