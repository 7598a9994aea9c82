"""Where the cluster's nodes are: labels and the operator's file, brought together for placement and for people."""

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
    """What is known of a level."""

    level: Level
    label: str
    """Of Ray nodes, that names their domain; empty for nodes and devices."""
    link: LinkSpeed
    """The way out of such a domain, as placement counts it."""
    measured_s: float | None = None
    """When a probe measured that, Unix seconds; None where it is the table's."""


@dataclass(frozen=True)
class TopologyState:
    """The topology as placement sees it."""

    levels: tuple[LevelInfo, ...]
    domains: tuple[Domain, ...]
    problems: tuple[str, ...]
    """What does not fit together, and what is made of it."""


class Topology:
    """Reads the file again when it has changed; one that has become unreadable leaves what was known."""

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
            TopologyError: it cannot be read.
        """
        self._refresh()
        if self._problem:
            raise TopologyError(self._problem)

    def located(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with their domains."""
        self._refresh()
        return with_domains(nodes, self._labels, self._places)

    def state(self, nodes: Sequence[Node], probes: Sequence[ProbeResult] = ()) -> TopologyState:
        """For people: of the nodes that take ranks."""
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
                _log.warning("the topology file cannot be used; what was known before counts", error=problem)
            self._problem = problem
