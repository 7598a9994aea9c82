"""How to split the ranks of a job where nodes were lost, and the split it had is nowhere possible any more. Pure."""

from collections.abc import Sequence

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.planner.alternatives import splits
from regroup.service.planner.capacity import room_of
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.placement.place import Unplaceable
from regroup.service.policy.placement.resize import resize_slots
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.spec.job import JobSpec
from regroup.service.spec.workload import BuiltinWorkload


def resplit(
    spec: JobSpec,
    most: int,
    seats: Sequence[tuple[str, int]],
    nodes: Sequence[Node],
    probes: Sequence[ProbeResult] = (),
) -> Layout | None:
    """As many ranks as there are nodes for, at most `most` and no fewer than the spec's fewest, in the fastest legal
    split that fits their memory; None: there is none, or nobody can tell.

    Args:
        seats: node id and ranks that the job has and may keep.
        nodes: with what is free on them beside what the job has.
        probes: what was measured of the devices.
    """
    if not isinstance(spec.workload, BuiltinWorkload):
        return None  # who has a loop of his own has split the model himself
    try:
        room = room_of(demand_of(spec, Layout()), nodes, probes)
        for ranks in range(most, _fewest(spec) - 1, -1):
            if not _is_room(spec, Layout(dp_shard=ranks), seats, nodes):
                continue  # not even where each rank may be anywhere
            fastest = (layout for layout, _ in splits(spec, ranks, room))
            if found := next((layout for layout in fastest if _is_room(spec, layout, seats, nodes)), None):
                return found
    except SpecError:
        return None
    return None


def _fewest(spec: JobSpec) -> int:
    return spec.layout.dp.min * spec.layout.tp * spec.layout.pp


def _is_room(spec: JobSpec, layout: Layout, seats: Sequence[tuple[str, int]], nodes: Sequence[Node]) -> bool:
    return not isinstance(resize_slots(demand_of(spec, layout), seats, nodes), Unplaceable)
