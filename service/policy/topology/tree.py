"""Combine the sources of node topology, report contradictions, and build the tree of domains."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.topology import DEFAULT_LABELS, DOMAIN_LEVELS, Level, Node
from regroup.service.policy.topology.device_islands import Island
from regroup.service.policy.topology.slurm_file import NodeDomains

_MAX_LISTED = 3
_NO_DOMAINS: NodeDomains = {}


@dataclass(frozen=True)
class Domain:
    """One domain, or node, of the tree."""

    level: Level
    name: str
    """Name; empty for nodes whose domain is unknown."""
    nodes: int
    cpus: float
    free_cpus: float
    gpus: float
    free_gpus: float
    children: tuple["Domain", ...]
    islands: tuple[Island, ...] = ()
    """For a node: its device islands, if known."""


def with_domains(
    nodes: Iterable[Node], labels: Mapping[Level, str] = DEFAULT_LABELS, places: NodeDomains = _NO_DOMAINS
) -> list[Node]:
    """Return the nodes with their domains, from labels first and the topology file second.

    The file can name a node by its permanent name, its display name or its address.
    """
    found = list[Node]()
    for node in nodes:
        filed = next((places[name] for name in (node.machine, node.name, node.address) if name in places), {})
        domains = tuple(node.labels.get(labels.get(level, "")) or filed.get(level, "") for level in DOMAIN_LEVELS)
        found.append(node if node.domains else replace(node, domains=domains))
    return found


def find_topology_problems(
    nodes: Sequence[Node], labels: Mapping[Level, str] = DEFAULT_LABELS, places: NodeDomains = _NO_DOMAINS
) -> list[str]:
    """Return the contradictions in the topology of nodes, and how each is resolved."""
    nodes = sorted(nodes, key=lambda node: (node.name, node.id))
    problems = [*_two_parents(nodes), *_unnamed(nodes)]
    for level in DOMAIN_LEVELS:
        differing = dict[tuple[str, str], list[str]]()
        for node in nodes:
            label = node.labels.get(labels.get(level, ""), "")
            filed = next((places[name] for name in (node.machine, node.name, node.address) if name in places), {})
            if label and level in filed and filed[level] != label:
                differing.setdefault((label, filed[level]), []).append(node.name)
        problems += [
            f"{_names(names)}: the label names {level} {label!r}, the file {filed!r}; the label takes precedence"
            for (label, filed), names in differing.items()
        ]
    if places and (missing := [node.name for node in nodes if not _is_filed(node, places)]):
        problems.append(f"{_names(missing)}: not in the topology file")
    return problems


def build_tree(nodes: Sequence[Node], inside: Mapping[str, tuple[Island, ...]] = {}) -> tuple[Domain, ...]:
    """Return the tree of domains, the largest first and by name; levels without names are omitted.

    Args:
        inside: permanent name of a node → its islands.
    """
    named = [index for index in range(len(DOMAIN_LEVELS)) if any(node.domains[index] for node in nodes)]
    return _below(sorted(nodes, key=lambda node: (node.domains, node.name, node.id)), named, inside)


def _below(
    nodes: Sequence[Node], levels: Sequence[int], inside: Mapping[str, tuple[Island, ...]]
) -> tuple[Domain, ...]:
    if not levels:
        with_islands = ((node, inside.get(node.machine, ())) for node in nodes)
        return tuple(replace(_domain(Level.NODE, node.name, [node], ()), islands=found) for node, found in with_islands)
    groups = dict[str, list[Node]]()
    for node in nodes:
        groups.setdefault(node.domains[levels[0]], []).append(node)
    return tuple(
        _domain(DOMAIN_LEVELS[levels[0]], name, group, _below(group, levels[1:], inside))
        for name, group in groups.items()
    )


def _domain(level: Level, name: str, nodes: Sequence[Node], children: tuple[Domain, ...]) -> Domain:
    return Domain(
        level,
        name,
        len(nodes),
        sum(node.cpus for node in nodes),
        sum(node.free_cpus for node in nodes),
        sum(node.gpus for node in nodes),
        sum(node.free_gpus for node in nodes),
        children,
    )


def _two_parents(nodes: Sequence[Node]) -> list[str]:
    """Report domains with one name in two domains of the level above."""
    problems = list[str]()
    for index in range(1, len(DOMAIN_LEVELS)):
        above = dict[str, dict[tuple[str, ...], str]]()
        for node in nodes:
            if name := node.domains[index]:
                above.setdefault(name, {}).setdefault(node.domains[:index], node.name)
        for name, places in above.items():
            if len(places) > 1:
                parents = " and ".join(f"{_path(path)} ({node})" for path, node in list(places.items())[:_MAX_LISTED])
                problems.append(f"{DOMAIN_LEVELS[index]} {name!r} is in {parents}: treated as {len(places)} domains")
    return problems


def _unnamed(nodes: Sequence[Node]) -> list[str]:
    """Report nodes without a domain at a level at which others have one. A node without a gpu_domain is its own."""
    problems = list[str]()
    for index, level in enumerate(DOMAIN_LEVELS[:-1]):
        without = [node.name for node in nodes if not node.domains[index]]
        if without and len(without) < len(nodes):
            problems.append(f"{_names(without)}: no {level} is known; each is treated as its own {level}")
    return problems


def _is_filed(node: Node, places: NodeDomains) -> bool:
    return any(name in places for name in (node.machine, node.name, node.address))


def _path(path: tuple[str, ...]) -> str:
    index = max((at for at, name in enumerate(path) if name), default=-1)
    return f"{DOMAIN_LEVELS[index]} {path[index]!r}" if index >= 0 else "no domain"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
