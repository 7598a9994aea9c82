"""Fallback layout of a job that lost nodes, for which no size of its current layout fits any more. Pure."""

from collections.abc import Sequence

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.planner.alternatives import list_layouts
from regroup.service.planner.capacity import find_capacity
from regroup.service.policy.measurements.results import ProbeResult
from regroup.service.policy.placement.place import Unplaceable
from regroup.service.policy.placement.resize import resize_slots
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.spec.job import JobSpec
from regroup.service.spec.ladder import find_degrees
from regroup.service.spec.workload import BuiltinWorkload


def choose_fallback_layout(
    spec: JobSpec,
    max_ranks: int,
    slots: Sequence[tuple[str, int]],
    nodes: Sequence[Node],
    probes: Sequence[ProbeResult] = (),
) -> Layout | None:
    """Choose the fastest legal layout that fits, with as many ranks as the nodes fit, or nearly as many.

    Args:
        max_ranks: maximum number of ranks; the minimum is that of the spec.
        slots: node id and number of ranks that the job has and may keep.
        nodes: nodes with their free capacity, without the capacity of `slots`.
        probes: measurements of the devices.

    Returns:
        None if no layout fits, or the planner cannot model the job.
    """
    if not isinstance(spec.workload, BuiltinWorkload):
        return None  # the user's code splits the model itself
    try:
        capacity = find_capacity(demand_of(spec, Layout()), nodes, probes)
        for ranks in reversed(find_degrees(_min_ranks(spec), max_ranks)):
            if not _fits(spec, Layout(dp_shard=ranks), slots, nodes):
                continue  # no layout of this size fits, as even the one without groups does not
            fastest = (layout for layout, _ in list_layouts(spec, ranks, capacity))
            if found := next((layout for layout in fastest if _fits(spec, layout, slots, nodes)), None):
                return found
    except SpecError:
        return None
    return None


def _min_ranks(spec: JobSpec) -> int:
    return spec.layout.dp.min * spec.layout.tp * spec.layout.pp


def _fits(spec: JobSpec, layout: Layout, slots: Sequence[tuple[str, int]], nodes: Sequence[Node]) -> bool:
    return not isinstance(resize_slots(demand_of(spec, layout), slots, nodes), Unplaceable)
