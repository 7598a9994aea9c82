"""Requests about clusters and nodes, their topology and their drains."""

import time
from collections.abc import Sequence

import httpx2

from regroup.api.client.connection.requests import Operation, Request, Sleep, no_content, send, to_model, url_path
from regroup.api.schemas.drains import Drain
from regroup.api.schemas.nodes import ClusterList, ClusterState, Node, NodeList
from regroup.api.schemas.topology import Topology

_DRAIN_POLL_S = 0.5
_NOT_FOUND = 404


def nodes() -> Request[list[Node]]:
    """List the nodes."""
    return Request("GET", url_path("nodes"), lambda response: to_model(NodeList)(response).nodes)


def clusters() -> Request[list[ClusterState]]:
    """List the clusters."""
    return Request("GET", url_path("clusters"), lambda response: to_model(ClusterList)(response).clusters)


def topology() -> Request[Topology]:
    """Get the topology."""
    return Request("GET", url_path("topology"), to_model(Topology))


def cordon(node: str, reason: str) -> Request[Node]:
    """Cordon a node."""
    return Request("POST", url_path("nodes", node, "cordon"), to_model(Node), body={"reason": reason})


def uncordon(node: str, reason: str) -> Request[Node]:
    """Uncordon a node."""
    return Request("POST", url_path("nodes", node, "uncordon"), to_model(Node), body={"reason": reason})


def drain(node: str, deadline_s: float | str, reason: str, also: Sequence[str]) -> Request[Drain]:
    """Drain a node."""
    body = {"deadline_s": deadline_s, "reason": reason, **({"also": list(also)} if also else {})}
    return Request("POST", url_path("nodes", node, "drain"), to_model(Drain), body=body)


def undrain(node: str) -> Request[None]:
    """End the drain of a node."""
    return Request("DELETE", url_path("nodes", node, "drain"), no_content)


def drain_status(node: str) -> Request[Drain]:
    """Get the drain of a node."""
    return Request("GET", url_path("nodes", node, "drain"), to_model(Drain))


def wait_for_drain(node: str) -> Operation[Drain]:
    """Poll the drain of a node until the node is empty or the deadline has passed."""
    found = yield from send(drain_status(node))
    poll = Request("GET", url_path("nodes", node, "drain"), _drain_or_none, accepted_statuses=frozenset({_NOT_FOUND}))
    while found.jobs and (found.deadline_at is None or time.time() < found.deadline_at):
        yield Sleep(_DRAIN_POLL_S)
        update = yield from send(poll)
        if update is None:  # a node that Ray drains may leave the cluster as soon as it is empty
            return found.model_copy(update={"jobs": []})
        found = update
    return found


def _drain_or_none(response: httpx2.Response) -> Drain | None:
    return None if response.status_code == _NOT_FOUND else Drain.model_validate_json(response.content)
