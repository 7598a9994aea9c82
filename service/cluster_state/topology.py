"""The topology of the cluster, merged from node labels and the operator's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from regroup.service.cluster_state.topology_file import REMEDY, TopologyFile
from regroup.service.domain.topology import DEFAULT_LABELS, DOMAIN_LEVELS, Level, Node
from regroup.service.policy.measurements.hardware_overlay import measured_links
from regroup.service.policy.measurements.results import ProbeResult, fabrics_of
from regroup.service.policy.placement.link_speeds import LinkSpeed, links_for
from regroup.service.policy.topology.device_islands import with_fabrics
from regroup.service.policy.topology.hostlist import TopologyError
from regroup.service.policy.topology.slurm_file import NodeDomains
from regroup.service.policy.topology.tree import Domain, build_tree, find_topology_problems, with_domains
from regroup.service.settings import Settings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LevelInfo:
    """A level of the topology."""

    level: Level
    label: str
    """Label of Ray nodes that contains their domain; empty for nodes and devices."""
    link: LinkSpeed
    """Link out of a domain of this level, as placement uses it."""
    nominal: LinkSpeed
    """The same link in the hardware table."""
    measured_s: float | None = None
    """Time of the probe that measured the link, Unix seconds; None if it is a default value."""


@dataclass(frozen=True)
class TopologyState:
    """The topology that placement uses."""

    levels: tuple[LevelInfo, ...]
    domains: tuple[Domain, ...]
    problems: tuple[str, ...]
    """Contradictions, and how each is resolved. The problem of the topology file and its notes come first."""


class Topology:
    """The topology of nodes. Changes of the file are read; if it becomes unreadable, its last content stays in use."""

    def __init__(self, settings: Settings) -> None:
        self._labels: Mapping[Level, str] = {
            level: settings.topology_labels.get(level.value, DEFAULT_LABELS[level]) for level in DOMAIN_LEVELS
        }
        self._file = TopologyFile(settings.topology_file) if settings.topology_file is not None else None

    def check(self) -> None:
        """Read the file for the first time.

        Raises:
            TopologyError: the file is unreadable or invalid. A server does not start with such a file, because it
                would place jobs without regard to the network, unnoticed.
        """
        if self._file is None:
            return
        self._file.refresh()
        if self._file.problem:
            raise TopologyError(f"topology file {self._file.problem}; {REMEDY}")

    def located(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes with their domains."""
        self._refresh()
        return with_domains(nodes, self._labels, self._places)

    def state(self, nodes: Sequence[Node], probes: Sequence[ProbeResult] = ()) -> TopologyState:
        """Return the topology of the nodes that can get ranks, for people."""
        located = self.located([node for node in nodes if node.alive and not node.is_control])
        here = with_fabrics(located, fabrics_of(probes))
        kind = "cuda" if any(node.gpus for node in here) else "cpu"
        probe = next((probe for probe in probes if probe.kind == kind), None)
        table = links_for(kind)
        speeds, when = (
            measured_links(table, probe),
            {each.level: probe.time_s for each in probe.levels} if probe else {},
        )
        levels = tuple(
            LevelInfo(level, self._labels.get(level, ""), speeds[level], table[level], when.get(level))
            for level in Level
        )
        own_problems = self._own_problems()
        inside = {node.name: node.islands for each in probes for node in each.nodes}
        return TopologyState(
            levels, build_tree(here, inside), (*own_problems, *find_topology_problems(here, self._labels, self._places))
        )

    @property
    def _places(self) -> NodeDomains:
        return {} if self._file is None else self._file.content.places

    def _own_problems(self) -> Sequence[str]:
        if self._file is None:
            return ()
        problem = (
            f"topology file {self._file.problem}; its last valid content stays in use" if self._file.problem else ""
        )
        return [*([problem] if problem else ()), *self._file.content.notes]

    def _refresh(self) -> None:
        if self._file is not None and self._file.refresh() and self._file.problem:
            _log.warning("the topology file is invalid; its last valid content stays in use", error=self._file.problem)
