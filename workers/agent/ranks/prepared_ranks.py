"""Ranks of the next generation on this node: they are formed while this one trains, and wait for their state."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from regroup.workers.agent.ranks.rank_group import RankGroup
from regroup.workers.agent.ranks.rank_launch import RankLaunch, RankPlaces
from regroup.workers.agent.ranks.state_replies import RankState
from regroup.workers.agent.ranks.stores import Stores
from regroup.workers.contract.messages import Join
from regroup.workers.contract.start_messages import Restore
from regroup.workers.os import node_facts, procfs
from regroup.workers.zygote.client import ZygoteLink

_LEAST_BYTES = 256 << 20
"""Least memory of a process that has formed its groups and built its model without state."""


class MemoryShortage(Exception):
    """The node lacks memory for a second set of ranks."""


class PreparedRanks:
    """The waiting ranks of one node. None of them has run code of the job's training function."""

    def __init__(self, launch: RankLaunch, zygote: ZygoteLink, generation: int) -> None:
        """Initialize without ranks.

        Args:
            launch: starts ranks.
            zygote: zygote from which they are forked.
            generation: the generation that they will be.
        """
        self.group = launch.new_group(generation, zygote, None, {})
        self._launch, self._zygote = launch, zygote
        self._places: RankPlaces = {}
        self._locks: dict[int, Path] = {}

    def fork(self, joins: Sequence[Join], devices: Sequence[int]) -> None:
        """Fork the ranks. Their devices belong to the ranks that still train.

        Raises:
            StartError: a rank could not be started.
        """
        self._locks = {join.rank: self._launch.lock_of(device) for join, device in zip(joins, devices, strict=True)}
        self._places = self._launch.fork(self.group, joins, devices, may_lock=False)

    @property
    def generation(self) -> int:
        """The generation that these ranks will be."""
        return self.group.generation

    @property
    def children(self) -> list[int]:
        """The zygote's ids of the live ranks."""
        live = (local.child for local in self.group.ranks.values() if local.exit_code is None)
        return [] if self._zygote.dead else list(live)

    @property
    def is_complete(self) -> bool:
        """True if all ranks are alive and wait."""
        return not self._zygote.dead and self.group.is_prepared

    def places_from(self, restore: Restore) -> RankPlaces:
        """Return the places of the ranks, with the state to restore."""
        return {rank: (replace(join, restore=restore), env) for rank, (join, env) in self._places.items()}

    async def kill(self) -> None:
        """Kill the ranks and wait until they are dead. They have no children, because no code of the job has run."""
        await self._zygote.kill(self.children)
        self.group.close()

    def begin(self, restore: Restore, state: RankState, earlier_first_s: Mapping[str, float]) -> None:
        """Let the ranks restore their state and train. The ranks before them are dead."""
        self.group.begin(restore, state, self._locks, earlier_first_s)


class NextRanks:
    """Place of the prepared ranks of a node. At most one generation is prepared at a time."""

    def __init__(self, launch: RankLaunch, stores: Stores) -> None:
        """Initialize without ranks.

        Args:
            launch: starts ranks.
            stores: rendezvous stores of this node.
        """
        self._launch, self._stores = launch, stores
        self._prepared: PreparedRanks | None = None
        self._busy = asyncio.Lock()

    @property
    def generation(self) -> int:
        """Generation of the prepared ranks; 0 if there are none."""
        return self._prepared.generation if self._prepared is not None else 0

    def group(self) -> RankGroup | None:
        """Return the group of the prepared ranks."""
        return self._prepared.group if self._prepared is not None else None

    async def prepare(
        self,
        joins: Sequence[Join],
        devices: Sequence[int],
        present: int,
        zygote: Callable[[], Awaitable[ZygoteLink]],
        running: Iterable[int | None],
    ) -> None:
        """Fork ranks of a later generation. They replace those that were prepared before.

        Args:
            joins: one for each rank.
            devices: device of each of these ranks.
            present: generation that trains.
            zygote: returns the zygote when it is ready.
            running: pids of the ranks that train.

        Raises:
            MemoryShortage: the node lacks memory for both generations.
            StartError: a rank could not be started.
        """
        generation = joins[0].generation
        async with self._busy:
            await self._stores.kill_between(present, generation - 1)
            await self._kill(generation)
            require_memory(len(joins), running)
            self._prepared = PreparedRanks(self._launch, await zygote(), generation)
            self._prepared.fork(joins, devices)

    def acquire(self, generation: int) -> PreparedRanks:
        """Return the ranks of a generation, all of which are alive and wait. They are no longer prepared then.

        Raises:
            LookupError: there are none.
        """
        if (found := self._prepared) is None or found.generation != generation or not found.is_complete:
            raise LookupError(f"the ranks of generation {generation} are not prepared on this node")
        self._prepared = None
        return found

    async def discard(self, generation: int, present: int) -> None:
        """Kill the ranks prepared for generations up to this one, with their stores. All other ranks train on.

        Args:
            generation: last generation.
            present: generation that trains.
        """
        async with self._busy:
            await self._stores.kill_between(present, generation)
            await self._kill(generation)

    def spared(self, generation: int) -> list[int]:
        """Return the zygote's ids of the ranks and stores of later generations, which survive the end of this one."""
        stores, ranks = self._stores.forget_until(generation), self._prepared
        return [*stores, *(ranks.children if ranks is not None and ranks.generation > generation else ())]

    def forget(self, generation: int) -> None:
        """Forget ranks up to a generation: they are dead."""
        if (found := self._pop(generation)) is not None:
            found.group.close()

    async def _kill(self, generation: int) -> None:
        if (found := self._pop(generation)) is not None:
            await found.kill()

    def _pop(self, generation: int) -> PreparedRanks | None:
        """Return the ranks up to a generation. Their exits are not reported from then on."""
        found = self._prepared
        if found is None or found.generation > generation:
            return None
        self._prepared = None
        return found


def require_memory(count: int, running: Iterable[int | None]) -> None:
    """Check that this node has memory for more ranks while those with the pids `running` train on.

    A waiting rank has no state yet. A rank that trains is a safe estimate of what it needs.

    Raises:
        MemoryShortage: it has too little.
    """
    each = max([_LEAST_BYTES, *(procfs.own_memory_bytes(pid) for pid in running if pid is not None)])
    needed, free = count * each, node_facts.free_memory_bytes()
    if needed > free:
        raise MemoryShortage(
            f"{count} ranks of the next generation need up to {needed >> 20} MiB in addition to those that train, and "
            f"{free >> 20} MiB are free"
        )
