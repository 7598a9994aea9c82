"""The quota headroom of running jobs: how much more a job may allocate under its project's quota."""

import asyncio
from collections.abc import Sequence

from regroup.service.cluster_state import queue as shown
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.demand import Demand
from regroup.service.policy.scheduling.capacity import Capacity
from regroup.service.policy.scheduling.decide import demand_of, quota_usage_of
from regroup.service.policy.scheduling.entries import Preemptibility, non_preemptible
from regroup.service.policy.scheduling.quota import QuotaBlock, QuotaUsage
from regroup.service.store.rows.records import JobRow
from regroup.service.store.store import Store


class QuotaHeadroom:
    """The quota headroom of all jobs of a leader. Each spec is parsed once."""

    def __init__(self, store: Store) -> None:
        self._store, self._specs = store, shown.Specs()
        self.lock = asyncio.Lock()
        """Lock of a growing job, from the check until its allocation rows are written: no two jobs get one device."""

    async def refusal(self, job: JobRow, layout: Layout, nodes: Sequence[Node], now: float) -> str:
        """Return the reason why the job may not have this size; empty if it may.

        Args:
            nodes: nodes with the resources that no job uses.
        """
        (held,) = await self._held(job, [layout], nodes, now)
        return f"for {layout.world_size} ranks, it {held.message}" if held else ""

    async def largest_degree(
        self, job: JobRow, layouts: Sequence[Layout], nodes: Sequence[Node], now: float, *, at_most: int
    ) -> int:
        """Return the largest permitted data-parallel degree of these layouts, up to `at_most`; 0 if there is none."""
        fitting = [layout for layout in layouts if layout.data_degree <= at_most]
        sizes = zip(fitting, await self._held(job, fitting, nodes, now), strict=True)
        return max((layout.data_degree for layout, held in sizes if held is None), default=0)

    async def spare_refusal(self, job: JobRow, demand: Demand, nodes: Sequence[Node], now: float) -> str:
        """Return the reason why the job may not have a spare node for `demand.ranks` ranks; empty if it may."""
        books, cluster = await self._books(now), Capacity(nodes)
        if books is None:
            return ""
        free, capacity = cluster.free_ranks(demand), cluster.total_ranks(demand)
        held = books.find_block(job.project, demand.ranks, demand.ranks, free=free, capacity=capacity)
        return held.message if held else ""

    async def _books(self, now: float) -> QuotaUsage | None:
        """Return the quota usage; None if no project has a quota."""
        if not (quotas := shown.quotas_of(await self._store.queue.projects())):
            return None
        live, rows = await self._store.live.rows(), await self._store.live.all_allocations()
        self._specs.retain(live)
        return quota_usage_of(shown.held(live, rows, self._specs, now=now), quotas)

    async def _held(
        self, job: JobRow, layouts: Sequence[Layout], nodes: Sequence[Node], now: float
    ) -> list[QuotaBlock | None]:
        if (books := await self._books(now)) is None:
            return [None] * len(layouts)
        spec, cluster = job.parsed_spec(), Capacity(nodes)
        rows = await self._store.live_allocations(job.id)
        has = sum(row.data["ranks"] for row in rows if row.is_for_ranks)
        least, preemptibility = spec.ladder[0].world_size, Preemptibility(spec.effective_preemptibility)
        found = list[QuotaBlock | None]()
        for layout in layouts:
            demand = demand_of(spec, layout)
            more_firm = non_preemptible(preemptibility, demand.ranks, least) - non_preemptible(
                preemptibility, has, least
            )
            free, capacity = cluster.free_ranks(demand), cluster.total_ranks(demand)
            found.append(books.find_block(job.project, demand.ranks - has, more_firm, free=free, capacity=capacity))
        return found
