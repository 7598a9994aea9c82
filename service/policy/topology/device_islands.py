"""What is inside of nodes, from what they read of themselves: devices that reach each other without leaving an island,
and nodes whose devices one NVLink fabric joins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node, domains_of

_FABRIC = DOMAIN_LEVELS.index(Level.GPU_DOMAIN)


@dataclass(frozen=True)
class Island:
    """Devices of a node that reach each other best; of a node without GPUs its cores."""

    link: Literal["nvswitch", "nvlink", "numa"]
    """What joins them: NVLink through switches or from GPU to GPU; else the NUMA node they are at."""
    gpus: tuple[int, ...]
    """As the driver numbers them."""
    numa: tuple[int, ...]
    """NUMA nodes that they are at, where known."""
    cores: str
    """Of these NUMA nodes, as the kernel lists them."""


def find_islands(inside: Mapping[str, Any]) -> tuple[Island, ...]:
    """The islands of a node, by what it read of itself (`workers/os/device_topology.py`).

    GPUs are of one island if a chain of NVLinks leads from one to the other, all switches of a node being one; those
    without any are of that of their NUMA node.

    Raises:
        KeyError, TypeError, ValueError: it is no such reading.
    """
    gpus: list[Mapping[str, Any]] = sorted(inside["gpus"], key=lambda gpu: int(gpu["index"]))
    cores = {int(number): str(listed) for number, listed in inside["numa"]}
    found = [_island(group, cores) for group in _joined(gpus)]
    if not found:
        return tuple(Island("numa", (), (number,), listed) for number, listed in cores.items())
    return tuple(found)


def fabric_name(inside: Mapping[str, Any]) -> str:
    """What names the domain of GPUs that NVLink joins across nodes; empty if there is none."""
    return str(inside["fabric"])


def with_fabrics(nodes: Sequence[Node], fabrics: Mapping[str, str]) -> list[Node]:
    """The nodes; those of which neither label nor file names the gpu_domain are in that of their fabric.

    Args:
        fabrics: what a node is called for good → its fabric.
    """
    return [_with_fabric(node, fabrics.get(node.machine, "")) for node in nodes]


def _with_fabric(node: Node, name: str) -> Node:
    domains = domains_of(node)
    if not name or domains[_FABRIC]:
        return node
    return replace(node, domains=(*domains[:_FABRIC], name, *domains[_FABRIC + 1 :]))


def _joined(gpus: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Groups that links, a switch, or a NUMA node make of them."""
    found: list[list[Mapping[str, Any]]] = []
    for gpu in gpus:
        touching = [group for group in found if any(_touch(gpu, other) for other in group)]
        found = [group for group in found if group not in touching]
        found.append([*(other for group in touching for other in group), gpu])
    return sorted(found, key=lambda group: min(int(gpu["index"]) for gpu in group))


def _touch(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["switches"] and other["switches"]:
        return True
    if other["bus"] in one["links"] or one["bus"] in other["links"]:
        return True
    return not (_is_linked(one) or _is_linked(other)) and one["numa"] == other["numa"]


def _is_linked(gpu: Mapping[str, Any]) -> bool:
    return bool(gpu["switches"] or gpu["links"])


def _island(group: Sequence[Mapping[str, Any]], cores: Mapping[int, str]) -> Island:
    numa = tuple(sorted({int(gpu["numa"]) for gpu in group if int(gpu["numa"]) >= 0}))
    switched, linked = any(gpu["switches"] for gpu in group), any(gpu["links"] for gpu in group)
    return Island(
        "nvswitch" if switched else "nvlink" if linked else "numa",
        tuple(sorted(int(gpu["index"]) for gpu in group)),
        numa,
        ",".join(cores[number] for number in numa if number in cores),
    )
