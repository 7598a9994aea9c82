"""Detection of stragglers in the running generation."""

import time
from collections.abc import Callable, Mapping

from regroup.service.domain.job_events import StragglerRank, StragglersChanged
from regroup.service.policy.detection.straggler import Straggler, filter_lasting, find_stragglers
from regroup.service.supervisor.job_state.generations import Generation
from regroup.service.supervisor.job_state.journal import Journal
from regroup.workers.contract.rank_activity import RankActivity


class StragglerMonitor:
    """Emits each change of the set of stragglers. A restarted supervisor emits the present set again."""

    def __init__(
        self, journal: Journal, *, is_disabled: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Initialize the monitor. `is_disabled` disables it, for a fault rehearsal."""
        self._journal, self._is_disabled, self._clock = journal, is_disabled, clock
        self._generation = 0
        self._named: tuple[int, ...] | None = None
        self._crowded_s: dict[int, float] = {}
        """Rank → time since which it waits for a processor, by `clock`."""
        self._emitted = 0

    def poll(self, generation: Generation, activities: Mapping[int, RankActivity]) -> None:
        """Detect stragglers from rank activity, and emit a change."""
        if generation.number != self._generation:
            self._generation = generation.number
            self._crowded_s = {}
            if self._named:
                self._emit(generation, ())  # the next generation may run on other nodes
        ranks = generation.ranks.numbers
        named = self._named or ()
        found = find_stragglers(activities, ranks, named, generation.layout.pp)
        if found is None or self._is_disabled:
            return
        found, self._crowded_s = filter_lasting(found, named, self._crowded_s, self._clock())
        if tuple(each.rank for each in found) != self._named:
            self._emit(generation, found)

    def _emit(self, generation: Generation, found: tuple[Straggler, ...]) -> None:
        self._named = tuple(each.rank for each in found)
        self._emitted += 1
        nodes = {place.rank: place.node_name for place in generation.ranks}
        key = f"stragglers:{self._journal.boot_id[:8]}:{self._emitted}"
        ranks = tuple(
            StragglerRank(each.rank, nodes[each.rank], each.work_s, each.usual_s, each.is_crowded) for each in found
        )
        self._journal.emit(key, StragglersChanged(ranks), generation.number, time.time())
