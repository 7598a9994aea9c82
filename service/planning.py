"""Jobs that leave their layout to the planner: it is chosen when they are submitted, for the nodes there are then."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.layout import Layout
from regroup.service.planner.choosing import Chosen, choose
from regroup.service.planner.room import room_of
from regroup.service.policy.demand import Demand
from regroup.service.policy.health import Rule
from regroup.service.policy.queueing import demand_of
from regroup.service.runtime.cluster import Cluster
from regroup.service.runtime.node_health import closed
from regroup.service.runtime.notices import nodes_to_use
from regroup.service.spec import JobSpec
from regroup.service.store.store import Store


@dataclass(frozen=True)
class Planned:
    """A spec with a layout, and what is to be remembered of how it came to it."""

    spec: JobSpec
    record: dict[str, Any] | None = None
    """None where there was nothing to choose."""


class Planning:
    """Asks the cluster for its nodes, and the planner for a layout on them."""

    def __init__(self, store: Store, cluster: Cluster, rule: Rule, clock: Callable[[], float]) -> None:
        self._store, self._cluster, self._rule, self._clock = store, cluster, rule, clock

    async def plan(self, spec: JobSpec, most: int | None = None) -> Planned:
        """The layout of a spec with `layout.auto`.

        Args:
            most: ranks that the job may have at most; None: no such limit.

        Raises:
            SpecError: the planner cannot describe the job, or nothing fits; the issue names what binds.
            UnavailableError: cluster or database does not answer.
        """
        now, nodes = self._clock(), await nodes_to_use(self._store, self._cluster)
        nodes = closed(nodes, await self._store.node_events(), now, self._rule)
        room = room_of(_one_rank(spec), nodes)
        # In a thread: for thousands of ranks it takes seconds.
        chosen = await asyncio.to_thread(choose, spec, room, most)
        return Planned(chosen.spec, _record(spec, chosen, now))


def _one_rank(spec: JobSpec) -> Demand:
    return demand_of(spec, Layout())


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
