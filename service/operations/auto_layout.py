"""Jobs that leave their layout to the planner: it is chosen when they are submitted, for the nodes there are then."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.node_health import closed
from regroup.service.cluster_state.probe_results import ProbeResults
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.alternatives import splits
from regroup.service.planner.auto_layout import Chosen, choose
from regroup.service.planner.capacity import Room, room_of
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import Cluster
from regroup.service.spec.job import JobSpec
from regroup.service.store.store import Store


@dataclass(frozen=True)
class Planned:
    """A spec with a layout, and what is to be remembered of how it came to it."""

    spec: JobSpec
    record: dict[str, Any] | None = None
    """None where there was nothing to choose."""


class Planning:
    """Asks the cluster for its nodes, and the planner for a layout on them."""

    def __init__(self, store: Store, cluster: Cluster, rule: QuarantinePolicy, clock: Callable[[], float]) -> None:
        self._store, self._cluster, self._rule, self._clock = store, cluster, rule, clock
        self._probes = ProbeResults()

    async def plan(self, spec: JobSpec, most: int | None = None) -> Planned:
        """The layout of a spec with `layout.auto`.

        Args:
            most: ranks that the job may have at most; None: no such limit.

        Raises:
            SpecError: the planner cannot describe the job, or nothing fits; the issue names what binds.
            UnavailableError: cluster or database does not answer.
        """
        # In a thread: for thousands of ranks it takes seconds.
        chosen = await asyncio.to_thread(choose, spec, await self._room(spec), most)
        return Planned(chosen.spec, _record(spec, chosen, self._clock()))

    async def split(self, spec: JobSpec, ranks: int) -> Layout:
        """The fastest way to split so many ranks of a job that has a layout, all else of its spec kept.

        Raises:
            SpecError: the planner cannot describe the job, or there is none; the issue says why.
            UnavailableError: cluster or database does not answer.
        """
        dp, each = spec.layout.dp, spec.layout.tp * spec.layout.pp
        if not dp.min * each <= ranks <= dp.max * each:
            say = f"not a size of this job, which has {dp.min * each} to {dp.max * each} ranks"
            raise SpecError([FieldIssue("ranks", say, ranks)])
        found = await asyncio.to_thread(splits, spec, ranks, await self._room(spec))
        if not found:
            raise SpecError([FieldIssue("ranks", "no split of so many is legal and fits", ranks)])
        return found[0][0]

    async def _room(self, spec: JobSpec) -> Room:
        nodes = await nodes_to_use(self._store, self._cluster)
        nodes = closed(nodes, await self._store.node_events(), self._clock(), self._rule)
        return room_of(demand_of(spec, Layout()), nodes, await self._probes.newest(self._store))


def _record(spec: JobSpec, chosen: Chosen, now: float) -> dict[str, Any]:
    """Plain data: `asked`, `given` (fields the spec had fixed), `planned_s` (Unix seconds), `candidates` that are to be
    tried, and the `report`."""
    assert spec.layout.auto is not None, "there was something to choose"
    return {
        "asked": spec.layout.auto.model_dump(mode="json"),
        "given": list(chosen.given),
        "planned_s": now,
        "candidates": [{"layout": layout.to_json(), "step_s": step_s} for layout, step_s in chosen.candidates],
        "report": {**asdict(chosen.report), "markdown": chosen.report.markdown},
    }
