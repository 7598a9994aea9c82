"""Tools for nodes: list, cordon, drain, also all nodes of a domain."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Count, Node, Reason, Seconds
from regroup.api.mcp.calls.tool import changes, reads
from regroup.api.schemas import nodes as schemas
from regroup.api.schemas.drains import Drain, JobMove
from regroup.api.schemas.topology import Domain, Topology
from regroup.api.schemas.wire import Wire
from regroup.service.domain.errors import NotFoundError

Status = Literal["open", "cordoned", "quarantined", "fenced", "unreachable", "draining"]
LevelName = Literal["zone", "block", "rack", "gpu_domain"]
DomainName = Annotated[
    str, Field(min_length=1, max_length=256, description="Name of the domain, as list_domains shows it")
]
MAX_DOMAIN_NODES = 256


class NodeLine(Wire):
    """A node in a list."""

    name: str
    cluster: str | None
    address: str | None
    status: str
    """Health, or `draining`."""
    why: str
    """Reason why the node accepts no new ranks."""
    score: float
    free_cpus: float
    cpus: float
    free_gpus: float
    gpus: float
    jobs: list[schemas.NodeJob]
    cordoned_by: str | None
    cordoned_at_s: float | None


class NodeLines(Wire):
    """Nodes, ordered by name."""

    nodes: list[NodeLine]
    total: int
    """Number of nodes that match."""
    by_status: dict[str, int]
    """Number of nodes of each status, of all nodes."""


class DomainLine(Wire):
    """A domain of the cluster."""

    level: str
    name: str
    path: str
    """Names of the domains that contain it, and its own."""
    nodes: list[str]
    """Names of its nodes."""
    gpus: float
    free_gpus: float
    cpus: float
    free_cpus: float


class Domains(Wire):
    """Domains of the cluster."""

    domains: list[DomainLine]
    problems: list[str]


class DomainDrain(Wire):
    """The drains of the nodes of a domain."""

    drains: list[Drain]
    refused: dict[str, str]
    """Nodes whose drain was refused, with the reasons."""
    moves: list[JobMove]
    """Effect on each job that has devices on a node of the domain."""


class Opened(Wire):
    """A node after the end of its drain."""

    node: str
    note: str


def status_of(node: schemas.Node) -> str:
    """Return the health of a node, or `draining`."""
    return "draining" if node.is_draining and node.health.status == "open" else node.health.status


async def node_state(caller: Caller, node: str) -> str:
    """Return the entity tag of a node."""
    return _named(await caller.client.nodes(), node).etag


async def drain_state(caller: Caller, node: str) -> str:
    """Return the entity tag of the drain of a node; empty if there is none."""
    try:
        return (await caller.client.drain_status(node)).etag or ""
    except ApiError as error:
        if error.problem.code == "not_found":
            return ""
        raise


@reads("List nodes")
async def list_nodes(
    caller: Caller,
    statuses: Annotated[tuple[Status, ...], Field(max_length=6, description="Only nodes of these statuses")] = (),
    has_jobs: Annotated[bool | None, Field(description="Only nodes with jobs, or without; null for all")] = None,
    limit: Count = 50,
    after: Annotated[str, Field(max_length=256, description="Only nodes whose names follow this one")] = "",
) -> NodeLines:
    """List nodes by health: free capacity, jobs, and why a node accepts no new ranks."""
    found = await caller.client.nodes()
    matching = [
        each
        for each in found
        if (not statuses or status_of(each) in statuses)
        and (has_jobs is None or bool(each.jobs) == has_jobs)
        and each.name > after
    ]
    counts: dict[str, int] = {}
    for each in found:
        counts[status_of(each)] = counts.get(status_of(each), 0) + 1
    return NodeLines(nodes=[_line(each) for each in matching[:limit]], total=len(matching), by_status=counts)


@reads("Get a node")
async def get_node(caller: Caller, node: Node) -> schemas.Node:
    """Get a node: capacity, jobs, health with its faults."""
    return _named(await caller.client.nodes(), node)


@reads("List domains")
async def list_domains(
    caller: Caller, level: Annotated[LevelName, Field(description="Level of the domains")] = "rack"
) -> Domains:
    """List the domains of a level, for example racks, with their nodes."""
    topology = await caller.client.topology()
    found = [line for domain in topology.domains for line in _domains(domain, level, ())]
    return Domains(domains=found, problems=topology.problems)


@reads("Get the drain of a node")
async def get_drain(caller: Caller, node: Node) -> Drain:
    """Get the progress of a drain: its deadline and the jobs that are still on the node."""
    return await caller.client.drain_status(node)


@changes("Cordon a node", state=node_state, is_idempotent=True)
async def cordon_node(caller: Caller, node: Node, reason: Reason) -> NodeLine:
    """Place no new ranks on a node until it is uncordoned. Running jobs continue."""
    return _line(await caller.client.cordon(node, reason=reason))


@changes("Uncordon a node", state=node_state, is_idempotent=True)
async def uncordon_node(caller: Caller, node: Node, reason: Reason = "on request") -> NodeLine:
    """End the cordon or quarantine of a node and clear its faults. This undoes `cordon_node`."""
    return _line(await caller.client.uncordon(node, reason=reason))


@changes("Drain a node", state=drain_state, is_destructive=True)
async def drain_node(caller: Caller, node: Node, deadline_s: Seconds = 600.0, reason: Reason = "on request") -> Drain:
    """Drain a node before a deadline: its jobs move to other nodes, or save their next step and queue."""
    return await caller.client.drain(node, deadline_s=deadline_s, reason=reason)


@changes("End the drain of a node", state=drain_state, is_idempotent=True)
async def undrain_node(caller: Caller, node: Node) -> Opened:
    """End the drain of a node, so that it accepts ranks again. Ranks that left it do not move back."""
    await caller.client.undrain(node)
    return Opened(node=node, note="the node accepts ranks again")


async def _state_in_domain(caller: Caller, node: str) -> str:
    """Return the state of the drain of a node; `conflict` if the API refuses it, as it will refuse the drain."""
    try:
        return await drain_state(caller, node)
    except ApiError as error:
        if error.problem.code == "conflict":
            return "conflict"
        raise


async def _domain_states(caller: Caller, level: str, domain: str) -> Mapping[str, str]:
    names = _nodes_of(await caller.client.topology(), level, domain)
    states = await asyncio.gather(*(_state_in_domain(caller, name) for name in names))
    return dict(zip(names, states, strict=True))


@changes("Drain a domain", state=_domain_states, is_destructive=True)
async def drain_domain(
    caller: Caller,
    level: Annotated[LevelName, Field(description="Level of the domain")],
    domain: DomainName,
    deadline_s: Seconds = 600.0,
    reason: Reason = "on request",
) -> DomainDrain:
    """Drain all nodes of a domain, for example a rack, before a deadline. The preview shows where each job moves."""
    states = await _domain_states(caller, level, domain)
    drains, refused, moves = list[Drain](), dict[str, str](), list[JobMove]()
    counts = Counter(node.name for node in await caller.client.nodes())
    clear = [name for name in states if counts[name] == 1]  # two nodes may have one name; its drain is refused below
    for name, state in states.items():
        also = () if moves else tuple(other for other in clear if other != name)
        try:
            drain = await caller.for_part(name, state).drain(name, deadline_s=deadline_s, reason=reason, also=also)
            moves = moves or list(drain.moves)
            drains.append(drain.model_copy(update={"moves": ()}))
        except ApiError as error:
            if error.problem.code in ("forbidden", "unauthorized", "invalid_request"):
                raise
            refused[name] = error.problem.detail
        except ServerUnreachableError as error:  # the drains before this one have begun
            refused[name] = str(error)
    return DomainDrain(drains=drains, refused=refused, moves=moves)


def _named(nodes: Sequence[schemas.Node], node: str) -> schemas.Node:
    for each in nodes:
        if node in (each.name, each.node_id, each.node_name):
            return each
    names = ", ".join(each.name for each in nodes[:20]) or "none"
    raise NotFoundError(f"no node {node!r}; nodes: {names}")


def _line(node: schemas.Node) -> NodeLine:
    health = node.health
    return NodeLine(
        status=status_of(node), why=health.why, score=health.score, cordoned_by=health.cordoned_by,
        cordoned_at_s=health.cordoned_at_s, jobs=node.jobs,
        **node.model_dump(include={"name", "cluster", "address", "free_cpus", "cpus", "free_gpus", "gpus"}),
    )  # fmt: skip


def _domains(domain: Domain, level: str, parents: tuple[str, ...]) -> Iterator[DomainLine]:
    path = (*parents, domain.name)
    if domain.level == level:
        yield DomainLine(
            level=level, path="/".join(path), nodes=sorted(_leaves(domain)),
            **domain.model_dump(include={"name", "gpus", "free_gpus", "cpus", "free_cpus"}),
        )  # fmt: skip
    for child in domain.children:
        yield from _domains(child, level, path)


def _leaves(domain: Domain) -> Iterator[str]:
    if domain.level == "node":
        yield domain.name
    for child in domain.children:
        yield from _leaves(child)


def _nodes_of(topology: Topology, level: str, name: str) -> Sequence[str]:
    domains = [line for domain in topology.domains for line in _domains(domain, level, ())]
    found = [line for line in domains if name in (line.name, line.path)]
    if len(found) != 1:
        names = ", ".join(line.path for line in domains[:20]) or "none"
        problem = f"no {level} {name!r}" if not found else f"{len(found)} domains have the name {name!r}; use a path"
        raise NotFoundError(f"{problem}; {level} domains: {names}")
    if len(found[0].nodes) > MAX_DOMAIN_NODES:
        raise NotFoundError(
            f"{level} {name!r} has {len(found[0].nodes)} nodes; a tool drains {MAX_DOMAIN_NODES} at most: drain "
            "smaller domains one after the other"
        )
    return found[0].nodes
