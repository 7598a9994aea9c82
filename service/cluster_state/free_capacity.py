"""The capacity that running jobs could grow into, read once for all that search for it at the same time."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from regroup.service.cluster_state.allocations import without_allocated
from regroup.service.cluster_state.node_health import NodeHealth
from regroup.service.cluster_state.queue import waits_for_nodes
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.demand import Demand
from regroup.service.store.store import Store
from regroup.service.store.transactions.connection_share import without_limit

_VALID_S = (1.0, 5.0)
"""Shortest and longest time for which a reading is used."""
_MOST_SHARE = 0.02
"""Most of the time that reading takes, unless the longest validity is reached."""


@dataclass(frozen=True)
class FreeNodes:
    """The nodes at one moment, with the resources that no job uses."""

    by_id: Mapping[str, Node]
    free: Mapping[bool, Sequence[Node]]
    """Nodes that can take ranks of some job, by whether the ranks use GPUs."""
    is_awaited: bool
    """True if a queued job waits for nodes."""

    def of_job(self, demand: Demand, own: Collection[str], unusable: Collection[str]) -> list[Node]:
        """Return the nodes on which a job could continue: those with free resources, and its own."""
        others = (node for node in self.free[demand.device == "cuda"] if node.id not in own)
        mine = (self.by_id[node_id] for node_id in own if node_id in self.by_id)
        return [node for node in (*mine, *others) if node.id not in unusable]


class FreeCapacity:
    """The latest reading of one leader."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._found: FreeNodes | None = None
        self._valid_until_s = -float("inf")
        self._one_read = asyncio.Lock()

    async def read(self, health: NodeHealth, now: float) -> FreeNodes:
        """Return the nodes as of a moment ago.

        Raises:
            UnavailableError: the cluster or the database does not answer.
        """
        async with self._one_read:
            begun_s = self._clock()
            if self._found is None or begun_s >= self._valid_until_s:
                with without_limit():
                    self._found = await self._read(health, now)
                read_s = self._clock()
                shortest_s, longest_s = _VALID_S
                self._valid_until_s = read_s + min(longest_s, max(shortest_s, (read_s - begun_s) / _MOST_SHARE))
            return self._found

    def drop(self) -> None:
        """Forget the reading, because a job has taken capacity or found none."""
        self._valid_until_s = -float("inf")

    async def _read(self, health: NodeHealth, now: float) -> FreeNodes:
        is_awaited = any(waits_for_nodes(each) for each in await self._store.queued_jobs())
        nodes = without_allocated(await health.nodes(now), await self._store.live.all_allocations())
        open_nodes = [node for node in nodes if node.alive and not node.is_draining and not node.closed_reason]
        with_cpus = [node for node in open_nodes if node.free_cpus > 0]
        free = {False: with_cpus, True: [node for node in with_cpus if node.free_gpus > 0]}
        return FreeNodes({node.id: node for node in nodes}, free, is_awaited)
