"""Which rank keeps the others waiting: the one that works longer for a step than they do. Pure."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from regroup.workers.contract import Dwell

_MEASURED = 10
"""Steps that every rank has to have behind it in this generation: the first ones compile and connect."""
_FACTOR, _STILL = 1.5, 1.25
"""So many times the others' work makes a straggler, and so many keep one that was named: no to and fro."""
_FLOOR_S = 0.02
"""Less than this much longer a step is not worth a word."""


@dataclass(frozen=True)
class Straggler:
    """One rank and what sets it apart."""

    rank: int
    work_s: float
    """What it works for a step."""
    usual_s: float
    """What the others do: their median."""


def find_stragglers(
    dwells: Mapping[int, Dwell], ranks: Collection[int], named: Collection[int], stages: int = 1
) -> tuple[Straggler, ...] | None:
    """The ranks that straggle; None while it is too early to say.

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
    found: list[Straggler] = []
    for rank in sorted(ranks):
        work_s = dwells[rank].work_s
        usual_s = statistics.median(dwells[other].work_s for other in peers[rank])
        if work_s > usual_s * (_STILL if rank in named else _FACTOR) and work_s - usual_s > _FLOOR_S:
            found.append(Straggler(rank, work_s, usual_s))
    return tuple(found)


def _peers(rank: int, ranks: list[int], stages: int) -> list[int]:
    size = len(ranks) // stages
    begin = ranks.index(rank) // size * size
    return [other for other in ranks[begin : begin + size] if other != rank]
