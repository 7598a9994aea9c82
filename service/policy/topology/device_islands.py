"""Find the device islands inside nodes and the NVLink fabrics across nodes, from what the nodes report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regroup.service.domain.topology import DOMAIN_LEVELS, Level, Node, domains_of

_FABRIC = DOMAIN_LEVELS.index(Level.GPU_DOMAIN)


@dataclass(frozen=True)
class Island:
    """Devices of a node with the best connection to each other; cores for a node without GPUs."""

    link: Literal["nvswitch", "nvlink", "numa"]
    """Connection of the island: NVLink through switches, NVLink between GPUs, or the NUMA node."""
    gpus: tuple[int, ...]
    """GPU indexes as the driver numbers them."""
    numa: tuple[int, ...]
    """NUMA nodes of the devices, if known."""
    cores: str
    """Cores of these NUMA nodes, in the kernel's list format."""


def find_islands(inside: Mapping[str, Any]) -> tuple[Island, ...]:
    """Return the islands of a node, from its report (`workers/os/device_topology.py`).

    Two GPUs are in one island if a chain of NVLinks connects them; all switches of a node count as one. GPUs without
    NVLink form the island of their NUMA node.

    Raises:
        KeyError, TypeError, ValueError: the report is malformed.
    """
    gpus: list[Mapping[str, Any]] = sorted(inside["gpus"], key=lambda gpu: int(gpu["index"]))
    cores = {int(number): str(listed) for number, listed in inside["numa"]}
    found = [_island(group, cores) for group in _joined(gpus)]
    if not found:
        return tuple(Island("numa", (), (number,), listed) for number, listed in cores.items())
    return tuple(found)


def fabric_name(inside: Mapping[str, Any]) -> str:
    """Return the name of the NVLink fabric across nodes; empty if there is none."""
    return str(inside["fabric"])


def with_fabrics(nodes: Sequence[Node], fabrics: Mapping[str, str]) -> list[Node]:
    """Return the nodes, with the fabric as gpu_domain if neither a label nor the topology file names one.

    Args:
        fabrics: permanent name of a node → its fabric.
    """
    return [_with_fabric(node, fabrics.get(node.machine, "")) for node in nodes]


def _with_fabric(node: Node, name: str) -> Node:
    domains = domains_of(node)
    if not name or domains[_FABRIC]:
        return node
    return replace(node, domains=(*domains[:_FABRIC], name, *domains[_FABRIC + 1 :]))


def _joined(gpus: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the groups of GPUs that links, a switch or a NUMA node connect."""
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
