"""Detect ranks that delay the others: ranks that work longer per step, or that wait for a processor. Pure."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from regroup.workers.contract.messages import RankActivity

_MEASURED = 10
"""Number of steps that every rank must have completed in this generation: the first ones compile and connect."""
_FACTOR, _STILL = 1.5, 1.25
"""Factor above the others' work at which a rank becomes a straggler, and at which it remains one. The difference avoids
oscillation."""
_FLOOR_S = 0.02
"""Smallest difference per step that is reported."""
_CROWDED_S = 30.0
"""Time for which a node must be crowded before it is reported: starting processes crowd a node for a while."""


@dataclass(frozen=True)
class Straggler:
    """One straggling rank."""

    rank: int
    work_s: float
    """CPU time per step; on a crowded node including the time waiting for a processor."""
    usual_s: float
    """Median of the other ranks."""
    is_crowded: bool = False
    """True if the rank works no longer than the others but waits for a processor that another process uses."""


def find_stragglers(
    activities: Mapping[int, RankActivity], ranks: Collection[int], named: Collection[int], stages: int = 1
) -> tuple[Straggler, ...] | None:
    """Return the current stragglers; None while too few steps were measured.

    In a synchronous step all ranks take the same wall-clock time. Their time without waiting shows which rank the
    others wait for.

    Args:
        ranks: all ranks of the generation.
        named: ranks that were stragglers before.
        stages: number of pipeline stages. Only ranks of one stage have the same work.
    """
    peers = {rank: _peers(rank, sorted(ranks), stages) for rank in ranks}
    if not all(peers.values()) or any(
        rank not in activities or activities[rank].measured_steps < _MEASURED for rank in ranks
    ):
        return None
    works = {rank: activities[rank].work_s for rank in ranks}
    busy_times = {rank: activities[rank].work_s + activities[rank].ready_s for rank in ranks}
    found: list[Straggler] = []
    for rank in sorted(ranks):
        factor = _STILL if rank in named else _FACTOR
        if usual_s := _usual_s(works, rank, peers[rank], factor):
            found.append(Straggler(rank, works[rank], usual_s))
        elif usual_s := _usual_s(busy_times, rank, peers[rank], factor):
            found.append(Straggler(rank, busy_times[rank], usual_s, is_crowded=True))
    return tuple(found)


def filter_lasting(
    found: Sequence[Straggler], named: Collection[int], crowded_s: Mapping[int, float], now_s: float
) -> tuple[tuple[Straggler, ...], dict[int, float]]:
    """Return the stragglers to report, and the time since which each crowded one is crowded.

    Args:
        named: ranks that were stragglers before.
        crowded_s: last result of this function in the same generation.
        now_s: time on the same clock.
    """
    since_s = {each.rank: crowded_s.get(each.rank, now_s) for each in found if each.is_crowded}
    lasting = [each for each in found if each.rank in named or now_s - since_s.get(each.rank, -math.inf) >= _CROWDED_S]
    return tuple(lasting), since_s


def _usual_s(seconds: Mapping[int, float], rank: int, peers: Collection[int], factor: float) -> float | None:
    """Return the median of the others if a rank exceeds it by the factor, or None."""
    usual_s = statistics.median(seconds[other] for other in peers)
    return usual_s if seconds[rank] > usual_s * factor and seconds[rank] - usual_s > _FLOOR_S else None


def _peers(rank: int, ranks: list[int], stages: int) -> list[int]:
    size = len(ranks) // stages
    begin = ranks.index(rank) // size * size
    return [other for other in ranks[begin : begin + size] if other != rank]
