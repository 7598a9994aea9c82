"""Capacity of a cluster for a job, as input of the planner: one kind of device, and the number of ranks per node."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.hardware import DEVICES, Device, find_device
from regroup.service.domain.topology import ACCELERATOR_LABEL, DOMAIN_LEVELS, Level, Node, domains_of
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.cpu_calibration import calibrate_constants, measured_costs
from regroup.service.planner.types import Cluster
from regroup.service.policy.measurements.hardware_overlay import Hardware, measured_hardware
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.scheduling.capacity import ranks_that_fit, total_of

_GPU_DOMAIN = DOMAIN_LEVELS.index(Level.GPU_DOMAIN)


@dataclass(frozen=True)
class JobCapacity:
    """Capacity of idle nodes for the ranks of a job."""

    hardware: Hardware
    """Hardware of one rank: the slowest device, with the memory of the smallest, because all ranks wait for the
    slowest one and every rank must fit."""
    ranks: tuple[int, ...]
    """Number of ranks per node."""
    domain: int
    """Number of ranks in a fast-interconnect domain, as on most of the nodes."""
    node_memory_bytes: float = 0.0
    """Memory of the smallest node; 0: unknown."""

    @property
    def device(self) -> Device:
        """Device of one rank."""
        return self.hardware.device

    @property
    def constants(self) -> Constants:
        """Constants of the planner: calibrated by a probe of such devices, else the fitted ones."""
        return calibrate_constants(self.hardware.probe, FITTED)

    @property
    def total(self) -> int:
        """Number of ranks on all nodes."""
        return sum(self.ranks)

    def fits(self, ranks: int, segment: int) -> bool:
        """Return True if the nodes fit `ranks` ranks in groups of `segment` ranks on one node.

        For more ranks than the nodes fit now, return True if one node fits a group.
        """
        if ranks > self.total:
            return segment <= max(self.ranks)
        return sum(each // segment * segment for each in self.ranks) >= ranks

    def cluster(self, ranks: int) -> Cluster:
        """Return a cluster of `ranks` devices for the planner."""
        own = self.hardware
        return Cluster(own.device, ranks, self.domain, own.network_bytes_s, own.link, measured_costs(own.probe))


def find_capacity(demand: Demand, nodes: Sequence[Node], probes: Sequence[ProbeResult] = ()) -> JobCapacity:
    """Return the capacity of all open nodes for `demand`, as if they were idle.

    Args:
        probes: measurements of such devices, newest first.

    Raises:
        SpecError: no node fits a rank, or a node's device type is unknown.
    """
    open_nodes = [
        node for node in nodes if node.alive and not (node.is_control or node.is_draining or node.closed_reason)
    ]
    found = {node.id: (node, count) for node in open_nodes if (count := _count_ranks(node, demand))}
    if not found:
        message = f"no node of the cluster fits {replace(demand, ranks=1)}; set layout explicitly, or add nodes"
        raise SpecError([FieldIssue("layout.auto", message, "auto")])
    return _build_capacity(demand, list(found.values()), probes)


def generation_capacity(
    demand: Demand, nodes: Sequence[Node], ranks: Mapping[str, int], probes: Sequence[ProbeResult] = ()
) -> JobCapacity:
    """Return the capacity that a generation of a job uses.

    Args:
        ranks: node id → number of the generation's ranks on the node.

    Raises:
        SpecError: a node has left the cluster, or its device type is unknown.
    """
    used = [(node, ranks[node.id]) for node in nodes if node.id in ranks]
    if not used or len(used) < len(ranks):
        raise SpecError([FieldIssue("nodes", "nodes of the generation have left the cluster", sorted(ranks))])
    return _build_capacity(demand, used, probes)


def _build_capacity(demand: Demand, found: Sequence[tuple[Node, int]], probes: Sequence[ProbeResult]) -> JobCapacity:
    kinds = [_hardware(node, demand, count, probes) for node, count in found]
    slowest = min(kinds, key=lambda each: max(each.device.peak_tflops.values()) * each.device.ceiling)
    device = replace(slowest.device, memory_bytes=min(each.device.memory_bytes for each in kinds))
    joined = Counter[str]()
    for node, count in found:
        joined[domains_of(node)[_GPU_DOMAIN] or node.id] += count
    usual = Counter(joined.values()).most_common(1)[0][0]
    memory = float(min(node.memory_bytes for node, _ in found))
    return JobCapacity(replace(slowest, device=device), tuple(count for _, count in found), usual, memory)


def _count_ranks(node: Node, demand: Demand) -> int:
    return ranks_that_fit(replace(demand, segment=1), node, total_of(node))


def _hardware(node: Node, demand: Demand, count: int, probes: Sequence[ProbeResult]) -> Hardware:
    """Return the hardware of one rank on the node: a GPU, or its cores with its share of the memory."""
    if demand.device == "cpu":
        row = find_device("cpu")
        assert row is not None, "the hardware table has a row for CPUs"
        there = measured_hardware(row, probes)
        core = there.device
        peaks = {name: peak * demand.cpus for name, peak in core.peak_tflops.items()}
        memory = demand.memory_bytes or node.memory_bytes / count or core.memory_bytes
        return replace(there, device=replace(core, peak_tflops=peaks, memory_bytes=float(memory)))
    label = node.labels.get(ACCELERATOR_LABEL, "")
    device = find_device(re.sub(r"(\d)G\b", r"\1GB", label))  # Ray uses the name A100-40G, the table A100 40GB
    if device is None:
        names = ", ".join(each.name for each in DEVICES)
        problem = (
            f"has unknown GPUs {label!r}; expected one of {names}"
            if label
            else f"has no label {ACCELERATOR_LABEL}; set it to the name of its GPUs"
        )
        raise SpecError([FieldIssue("layout.auto", f"node {node.name} {problem}, or set layout explicitly", "auto")])
    return measured_hardware(device, probes)
