"""What of a cluster a job may take, as the planner is told: one kind of device, and how many ranks each node holds."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.hardware import DEVICES, Device, find_device
from regroup.service.domain.topology import ACCELERATOR_LABEL, DOMAIN_LEVELS, Level, Node, domains_of
from regroup.service.planner.constants import FITTED, Constants
from regroup.service.planner.cpu_calibration import constants_of, costs_of
from regroup.service.planner.types import Cluster
from regroup.service.policy.measurements.hardware_overlay import Hardware, measured_hardware
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.scheduling.capacity import ranks_that_fit, total_of

_GPU_DOMAIN = DOMAIN_LEVELS.index(Level.GPU_DOMAIN)


@dataclass(frozen=True)
class Room:
    """Where ranks of a job may be, if nothing else ran there."""

    there: Hardware
    """Of the slowest of their devices, with the memory of the smallest: all ranks wait for it, and it must hold its
    part."""
    ranks: tuple[int, ...]
    """Of each node that takes any."""
    domain: int
    """Ranks that the device's link joins, as most of the nodes have it."""

    @property
    def device(self) -> Device:
        """What one rank has."""
        return self.there.device

    @property
    def constants(self) -> Constants:
        """Of the planner, as far as a probe has told of such devices; else as they were fitted."""
        return constants_of(self.there.probe, FITTED)

    @property
    def total(self) -> int:
        """Ranks, all nodes together."""
        return sum(self.ranks)

    def holds(self, ranks: int, segment: int) -> bool:
        """Whether there are nodes for so many in whole groups of `segment`; of more ranks than there is room for now,
        whether a node holds a group."""
        if ranks > self.total:
            return segment <= max(self.ranks)
        return sum(each // segment * segment for each in self.ranks) >= ranks

    def cluster(self, ranks: int) -> Cluster:
        """So many of them, as the planner asks for it."""
        there = self.there
        return Cluster(there.device, ranks, self.domain, there.network_bytes_s, there.link, costs_of(there.probe))


def room_of(demand: Demand, nodes: Sequence[Node], probes: Sequence[ProbeResult] = ()) -> Room:
    """The room of the nodes that may take ranks of `demand`, if nothing else ran there. `probes`: what was measured of
    such devices, newest first.

    Raises:
        SpecError: there is none, or nobody knows what its devices are.
    """
    open_to_all = [
        node for node in nodes if node.alive and not (node.is_control or node.is_draining or node.closed_reason)
    ]
    found = {node.id: (node, count) for node in open_to_all if (count := _held_by(node, demand))}
    if not found:
        say = f"no node of the cluster takes a rank of {replace(demand, ranks=1)}: say the layout, or wait for nodes"
        raise SpecError([FieldIssue("layout.auto", say, "auto")])
    return _room(demand, list(found.values()), probes)


def room_taken(
    demand: Demand, nodes: Sequence[Node], ranks: Mapping[str, int], probes: Sequence[ProbeResult] = ()
) -> Room:
    """What a generation of a job is on. `ranks`: node id → how many of its ranks are there.

    Raises:
        SpecError: one of its nodes is not there any more, or nobody knows what its devices are.
    """
    there = [(node, ranks[node.id]) for node in nodes if node.id in ranks]
    if not there or len(there) < len(ranks):
        raise SpecError([FieldIssue("nodes", "some of them are gone", sorted(ranks))])
    return _room(demand, there, probes)


def _room(demand: Demand, found: Sequence[tuple[Node, int]], probes: Sequence[ProbeResult]) -> Room:
    kinds = [_hardware(node, demand, count, probes) for node, count in found]
    slowest = min(kinds, key=lambda each: max(each.device.peak_tflops.values()) * each.device.ceiling)
    device = replace(slowest.device, memory_bytes=min(each.device.memory_bytes for each in kinds))
    joined = Counter[str]()
    for node, count in found:
        joined[domains_of(node)[_GPU_DOMAIN] or node.id] += count
    usual = Counter(joined.values()).most_common(1)[0][0]
    return Room(replace(slowest, device=device), tuple(count for _, count in found), usual)


def _held_by(node: Node, demand: Demand) -> int:
    return ranks_that_fit(replace(demand, segment=1), node, total_of(node))


def _hardware(node: Node, demand: Demand, count: int, probes: Sequence[ProbeResult]) -> Hardware:
    """What one rank has there: a GPU, or its cores with its part of the memory."""
    if demand.device == "cpu":
        row = find_device("cpu")
        assert row is not None, "the hardware table has a row for it"
        there = measured_hardware(row, probes)
        core = there.device
        peaks = {name: peak * demand.cpus for name, peak in core.peak_tflops.items()}
        memory = demand.memory_bytes or node.memory_bytes / count or core.memory_bytes
        return replace(there, device=replace(core, peak_tflops=peaks, memory_bytes=float(memory)))
    label = node.labels.get(ACCELERATOR_LABEL, "")
    device = find_device(re.sub(r"(\d)G\b", r"\1GB", label))  # Ray says A100-40G, the table A100 40GB
    if device is None:
        known = ", ".join(each.name for each in DEVICES)
        what = (
            f"{label!r}, which is not in the hardware table: {known}" if label else f"nothing: set {ACCELERATOR_LABEL}"
        )
        say = f"node {node.name} says of its GPUs {what}; or say the layout yourself"
        raise SpecError([FieldIssue("layout.auto", say, "auto")])
    return measured_hardware(device, probes)
