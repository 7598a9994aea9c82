"""How much more a job that runs may hold, as far as the quotas of projects go."""

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
from regroup.service.store.records import JobRow
from regroup.service.store.store import Store


class QuotaHeadroom:
    """One for all jobs of a leader: specs are not read twice."""

    def __init__(self, store: Store) -> None:
        self._store, self._specs = store, shown.Specs()
        self.lock = asyncio.Lock()
        """Whoever grows holds it from the question until rows say what was taken: two must not take the same."""

    async def refusal(self, job: JobRow, layout: Layout, nodes: Sequence[Node], now: float) -> str:
        """Why the job may not be of this size; empty if it may.

        Args:
            nodes: with what is free beside all jobs.
        """
        (held,) = await self._held(job, [layout], nodes, now)
        return f"to be of {layout.world_size} ranks it {held.message}" if held else ""

    async def largest_degree(
        self, job: JobRow, layouts: Sequence[Layout], nodes: Sequence[Node], now: float, *, at_most: int
    ) -> int:
        """The largest data-parallel degree of these, `at_most` so much, that the job may have; 0 if none."""
        fitting = [layout for layout in layouts if layout.data_degree <= at_most]
        sizes = zip(fitting, await self._held(job, fitting, nodes, now), strict=True)
        return max((layout.data_degree for layout, held in sizes if held is None), default=0)

    async def spare_refusal(self, job: JobRow, demand: Demand, nodes: Sequence[Node], now: float) -> str:
        """Why the job may not hold a node ready, with room for so many ranks; empty if it may."""
        books, rooms = await self._books(now), Capacity(nodes)
        if books is None:
            return ""
        free, capacity = rooms.free_ranks(demand), rooms.total_ranks(demand)
        held = books.find_block(job.project, demand.ranks, demand.ranks, free=free, capacity=capacity)
        return held.message if held else ""

    async def _books(self, now: float) -> QuotaUsage | None:
        """None where nobody has set up a project."""
        if not (quotas := shown.quotas_of(await self._store.queue.projects())):
            return None
        live, rows = await self._store.live_jobs(), await self._store.live_allocations()
        self._specs.retain(live)
        return quota_usage_of(shown.held(live, rows, self._specs, now=now), quotas)

    async def _held(
        self, job: JobRow, layouts: Sequence[Layout], nodes: Sequence[Node], now: float
    ) -> list[QuotaBlock | None]:
        if (books := await self._books(now)) is None:
            return [None] * len(layouts)
        spec, rooms = job.parsed_spec(), Capacity(nodes)
        rows = await self._store.live_allocations(job.id)
        has = sum(row.data["ranks"] for row in rows if row.is_seat)
        least, preemptibility = spec.ladder[0].world_size, Preemptibility(spec.effective_preemptibility)
        found = list[QuotaBlock | None]()
        for layout in layouts:
            demand = demand_of(spec, layout)
            more_firm = non_preemptible(preemptibility, demand.ranks, least) - non_preemptible(
                preemptibility, has, least
            )
            free, capacity = rooms.free_ranks(demand), rooms.total_ranks(demand)
            found.append(books.find_block(job.project, demand.ranks - has, more_firm, free=free, capacity=capacity))
        return found
