"""The commands drain and undrain."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.deadlines import until_deadline
from regroup.api.cli.common.options import AsJson, Node, Server
from regroup.api.cli.common.output import print_message

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.drains import Drain, JobMove

Deadline = Annotated[
    str,
    typer.Option(
        "--deadline", metavar="TIME", help="Time until the node goes away, e.g. 120s or 15m; or a time: 17:00."
    ),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Text shown with every job that is relocated.")]
Also = Annotated[
    list[str],
    typer.Option(
        "--also", metavar="NODE", help="Another node that leaves: no job is predicted to move there. Repeatable."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until no job is left on the node; exit 0 only if it is empty in time.")
]


def drain(
    node: Node,
    deadline: Deadline = "10m",
    reason: Reason = "on request",
    also: Also = [],  # noqa: B006
    wait: Wait = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Drain a node. Its jobs move to other nodes without losing a step, or save their last step and queue."""
    from regroup.service.domain.errors import RegroupError

    def wait_for_drain(client: "Client", started: "Drain") -> "Drain":
        if not started.jobs:
            return started
        if not as_json:
            print_message(f"{_describe(started)}; waiting")
        return client.wait_for_drain(started.node_id)

    found = run_action(
        server,
        lambda client: client.drain(node, deadline_s=until_deadline(deadline), reason=reason, also=also),
        lambda started: "\n".join([_describe(started), *_describe_moves(started)]),
        as_json=as_json,
        wait=wait_for_drain if wait else None,
        describe_interrupt=lambda started: f"{started.node} is still drained: `regroup undrain {started.node}` ends it",
    )
    if wait and found.jobs:
        raise RegroupError(
            f"node {found.node} was not empty by {_deadline_text(found)}: still running {', '.join(found.jobs)}"
        )


def undrain(node: Node, server: Server = None) -> None:
    """End the drain of a node, so that it accepts ranks again."""
    run_action(server, lambda client: client.undrain(node), lambda _: f"{node} accepts ranks again", as_json=False)


def _describe(drain: "Drain") -> str:
    if drain.jobs:
        return f"draining {drain.node} (deadline {_deadline_text(drain)}), still running: {', '.join(drain.jobs)}"
    return f"{drain.node} is drained: no job runs there, and no new rank is placed there"


def _describe_moves(drain: "Drain") -> list[str]:
    return [f"  {move.name}: {_effect(move)}" for move in drain.moves]


def _effect(move: "JobMove") -> str:
    if move.effect == "moves":
        return ", ".join(f"{node.source} → {node.target} ({node.ranks} ranks)" for node in move.nodes)
    effect = "queues" if move.effect == "waits" else "continues with fewer ranks, or queues"
    return f"{effect}: {move.why}"


def _deadline_text(drain: "Drain") -> str:
    return "none" if drain.deadline_at is None else time.strftime("%H:%M:%S", time.localtime(drain.deadline_at))
