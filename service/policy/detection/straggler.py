"""Which rank keeps the others waiting: one that works longer for a step than they do, or that has to wait for a
processor. Pure."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from regroup.workers.contract.messages import RankActivity

_MEASURED = 10
"""Steps that every rank has to have behind it in this generation: the first ones compile and connect."""
_FACTOR, _STILL = 1.5, 1.25
"""So many times the others' work makes a straggler, and so many keep one that was named: no to and fro."""
_FLOOR_S = 0.02
"""Less than this much longer a step is not worth a word."""
_CROWDED_S = 30.0
"""A crowded node is worth a word if it stays so: whatever is started there crowds it for a while."""


@dataclass(frozen=True)
class Straggler:
    """One rank and what sets it apart."""

    rank: int
    work_s: float
    """What it works for a step; on a crowded node with what it waits for a processor."""
    usual_s: float
    """What the others do: their median."""
    is_crowded: bool = False
    """It works no longer than the others, and waits for a processor that something else on its node has."""


def find_stragglers(
    dwells: Mapping[int, RankActivity], ranks: Collection[int], named: Collection[int], stages: int = 1
) -> tuple[Straggler, ...] | None:
    """The ranks that straggle now; None while it is too early to say.

    In a synchronous step all ranks take the same time by the clock. Without their waiting for each other it shows who
    the others wait for.

    Args:
        ranks: all of the generation.
        named: those that were found before.
        stages: of the pipeline, each as many consecutive ranks; only ranks of one stage have the same work to do.
    """
    peers = {rank: _peers(rank, sorted(ranks), stages) for rank in ranks}
    if not all(peers.values()) or any(rank not in dwells or dwells[rank].paced < _MEASURED for rank in ranks):
        return None
    works = {rank: dwells[rank].work_s for rank in ranks}
    takes = {rank: dwells[rank].work_s + dwells[rank].ready_s for rank in ranks}
    found: list[Straggler] = []
    for rank in sorted(ranks):
        factor = _STILL if rank in named else _FACTOR
        if usual_s := _usual_s(works, rank, peers[rank], factor):
            found.append(Straggler(rank, works[rank], usual_s))
        elif usual_s := _usual_s(takes, rank, peers[rank], factor):
            found.append(Straggler(rank, takes[rank], usual_s, is_crowded=True))
    return tuple(found)


def filter_lasting(
    found: Sequence[Straggler], named: Collection[int], crowded_s: Mapping[int, float], now_s: float
) -> tuple[tuple[Straggler, ...], dict[int, float]]:
    """Those of `found` that are worth a word, and since when each that is crowded is.

    Args:
        named: those that were found before.
        crowded_s: as returned before, of the same generation.
        now_s: on the same clock.
    """
    since_s = {each.rank: crowded_s.get(each.rank, now_s) for each in found if each.is_crowded}
    told = [each for each in found if each.rank in named or now_s - since_s.get(each.rank, -math.inf) >= _CROWDED_S]
    return tuple(told), since_s


def _usual_s(seconds: Mapping[int, float], rank: int, peers: Collection[int], factor: float) -> float | None:
    """What the others take, if a rank takes so many times that."""
    usual_s = statistics.median(seconds[other] for other in peers)
    return usual_s if seconds[rank] > usual_s * factor and seconds[rank] - usual_s > _FLOOR_S else None


def _peers(rank: int, ranks: list[int], stages: int) -> list[int]:
    size = len(ranks) // stages
    begin = ranks.index(rank) // size * size
    return [other for other in ranks[begin : begin + size] if other != rank]
