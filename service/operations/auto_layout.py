"""Automatic layouts: the planner chooses a job's layout at submit time, for the nodes of the cluster at that time."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.node_health import closed
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.planner.alternatives import list_layouts
from regroup.service.planner.auto_layout import LayoutChoice, choose_layout
from regroup.service.planner.capacity import JobCapacity, find_capacity
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.job import JobSpec
from regroup.service.store.store import Store


@dataclass(frozen=True)
class PlannedSpec:
    """A spec with a layout, and the record of the choice."""

    spec: JobSpec
    record: dict[str, Any] | None = None
    """Record for the database; None if the spec sets the layout itself."""


class LayoutPlanner:
    """Reads the nodes of the cluster, and lets the planner choose a layout on them."""

    def __init__(self, store: Store, cluster: Cluster, rule: QuarantinePolicy, clock: Callable[[], float]) -> None:
        self._store, self._cluster, self._rule, self._clock = store, cluster, rule, clock
        self._probes = ProbeResults()

    async def plan(self, spec: JobSpec, max_ranks: int | None = None) -> PlannedSpec:
        """Choose the layout of a spec with `layout.auto`.

        Args:
            max_ranks: maximum number of ranks of the job; None for no limit.

        Raises:
            SpecError: the planner cannot model the job, or no layout fits. The issue names the limit.
            UnavailableError: the cluster or the database does not answer.
        """
        # In a thread: the search takes seconds for thousands of ranks.
        chosen = await CALCULATIONS.run(choose_layout, spec, await self.capacity(spec), max_ranks)
        return PlannedSpec(chosen.spec, _to_record(spec, chosen, self._clock()))

    async def split(self, spec: JobSpec, ranks: int) -> Layout:
        """Return the fastest layout of `ranks` ranks for a job. All other fields of its spec stay the same.

        Raises:
            SpecError: the planner cannot model the job, or no layout is legal and fits.
            UnavailableError: the cluster or the database does not answer.
        """
        dp, each = spec.layout.dp, spec.layout.tp * spec.layout.pp
        if not dp.min * each <= ranks <= dp.max * each:
            message = f"out of range: this job can have {dp.min * each} to {dp.max * each} ranks"
            raise SpecError([FieldIssue("ranks", message, ranks)])
        found = await CALCULATIONS.run(list_layouts, spec, ranks, await self.capacity(spec))
        if not found:
            raise SpecError(
                [FieldIssue("ranks", "no layout with this number of ranks is legal and fits in memory", ranks)]
            )
        return found[0][0]

    async def capacity(self, spec: JobSpec) -> JobCapacity:
        """Return the capacity of all open nodes for the ranks of a job, as if the nodes were idle.

        Raises:
            SpecError: no node fits a rank, or a device type is unknown.
            UnavailableError: the cluster or the database does not answer.
        """
        nodes = await nodes_to_use(self._store, self._cluster)
        nodes = closed(nodes, await self._store.nodes.events(), self._clock(), self._rule)
        return find_capacity(demand_of(spec, Layout()), nodes, await self._probes.newest(self._store))


def _to_record(spec: JobSpec, chosen: LayoutChoice, now: float) -> dict[str, Any]:
    """Return the choice as JSON.

    `requested` is `layout.auto` of the spec, `given` the fields that the spec sets, `planned_s` the time in Unix
    seconds, `candidates` the layouts to try, and `report` the planner's report.
    """
    assert spec.layout.auto is not None, "the spec requests an automatic layout"
    return {
        "requested": spec.layout.auto.model_dump(mode="json"),
        "given": list(chosen.given),
        "planned_s": now,
        "candidates": [{"layout": layout.to_json(), "step_s": step_s} for layout, step_s in chosen.candidates],
        "report": {**asdict(chosen.report), "markdown": chosen.report.markdown},
    }
