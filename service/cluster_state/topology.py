"""The topology of the cluster, merged from node labels and the operator's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from regroup.service.domain.topology import DEFAULT_LABELS, DOMAIN_LEVELS, Level, Node
from regroup.service.policy.measurements.hardware_overlay import measured_links
from regroup.service.policy.measurements.results import ProbeResult, fabrics_of
from regroup.service.policy.placement.link_speeds import LinkSpeed, links_for
from regroup.service.policy.topology.device_islands import with_fabrics
from regroup.service.policy.topology.slurm_file import NodeDomains, TopologyError, parse_topology
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
    measured_s: float | None = None
    """Time of the probe that measured the link, Unix seconds; None if it is a default value."""


@dataclass(frozen=True)
class TopologyState:
    """The topology that placement uses."""

    levels: tuple[LevelInfo, ...]
    domains: tuple[Domain, ...]
    problems: tuple[str, ...]
    """Contradictions, and how each is resolved."""


class Topology:
    """The topology of nodes. Changes of the file are read; if it becomes unreadable, its last content stays in use."""

    def __init__(self, settings: Settings) -> None:
        self._labels: Mapping[Level, str] = {
            level: settings.topology_labels.get(level.value, DEFAULT_LABELS[level]) for level in DOMAIN_LEVELS
        }
        self._file: Path | None = settings.topology_file
        self._places: NodeDomains = {}
        self._read: tuple[int, int] | None = None
        self._problem = ""

    def check(self) -> None:
        """Read the file for the first time.

        Raises:
            TopologyError: the file is unreadable or invalid.
        """
        self._refresh()
        if self._problem:
            raise TopologyError(self._problem)

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
        speeds, when = (
            measured_links(links_for(kind), probe),
            {each.level: probe.time_s for each in probe.levels} if probe else {},
        )
        levels = tuple(LevelInfo(level, self._labels.get(level, ""), speeds[level], when.get(level)) for level in Level)
        own_problems = [self._problem] if self._problem else []
        inside = {node.name: node.islands for each in probes for node in each.nodes}
        return TopologyState(
            levels, build_tree(here, inside), (*own_problems, *find_topology_problems(here, self._labels, self._places))
        )

    def _refresh(self) -> None:
        if self._file is None:
            return
        try:
            status = self._file.stat()
            if (mark := (status.st_mtime_ns, status.st_size)) == self._read:
                return
            self._read = mark
            self._places = parse_topology(self._file.read_text())
            self._problem = ""
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            problem = f"topology file {self._file}: {error}"
            if problem != self._problem:
                _log.warning("the topology file is invalid; its last valid content stays in use", error=problem)
            self._problem = problem
