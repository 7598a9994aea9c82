"""Where a pipeline is cut, and which rank holds which stages. Pure."""

from collections.abc import Sequence
from itertools import accumulate

LOOPED = ("interleaved_1f1b", "interleaved_zero_bubble")
"""Schedules in which a rank holds every p-th stage."""
V_SHAPED = ("zbv",)
"""Schedules in which a rank holds one stage of the way down and one of the way up: the last one is with the first."""
SINGLE = ("gpipe", "1f1b")
"""Schedules with one stage a rank."""
STAGES_OF_A_RANK = 2
"""Of looped and V-shaped schedules."""


def stage_count(schedule: str, ranks: int) -> int:
    """Stages of the whole pipeline."""
    return ranks if schedule in SINGLE else ranks * STAGES_OF_A_RANK


def stages_of(schedule: str, ranks: int, rank: int) -> tuple[int, ...]:
    """Stages of one pipeline rank, from the first to the last."""
    if schedule in V_SHAPED:
        return (rank, 2 * ranks - 1 - rank)
    return tuple(range(rank, stage_count(schedule, ranks), ranks))


def rank_of_last(schedule: str, ranks: int) -> int:
    """The pipeline rank that computes the loss."""
    return 0 if schedule in V_SHAPED else ranks - 1


def idle_share(busy_s: Sequence[float], ranks: int, pass_s: float) -> float:
    """The part of forward and backward in which a rank of the pipeline computes nothing: its bubble, and waiting.

    Args:
        busy_s: seconds that each stage computed.
        pass_s: seconds of all of it.
    """
    return 1 - sum(busy_s) / (ranks * pass_s)


def bubble(schedule: str, ranks: int, micro_batches: int) -> float | None:
    """The same in theory, of equal stages (Narayanan et al. 2021, §2.2); None for schedules that fill it with the
    gradients of weights, whose rest depends on how long those take."""
    if schedule not in SINGLE and schedule != "interleaved_1f1b":
        return None
    rounds = micro_batches * stage_count(schedule, ranks) // ranks
    return (ranks - 1) / (rounds + ranks - 1)


def cut(costs: Sequence[float], stages: int) -> tuple[range, ...]:
    """Consecutive blocks of each stage, so that the costliest stage costs as little as can be.

    Of cuts that are as good, the one whose early stages are shorter; every stage has a block at least.

    Args:
        costs: of each block; what stands before the first and behind the last counts with them.
        stages: at most as many as blocks.
    """
    assert 1 <= stages <= len(costs), f"{len(costs)} blocks make no {stages} stages"
    until = [0.0, *accumulate(costs)]
    # best[k][n]: the costliest stage's cost when the first n blocks are cut into k stages, and where the last begins.
    best: list[list[tuple[float, int]]] = [[(cost, 0) for cost in until]]
    for count in range(2, stages + 1):
        row = [(float("inf"), 0)] * (len(costs) + 1)
        for stop in range(count, len(costs) + 1):
            row[stop] = min(
                (max(best[-1][start][0], until[stop] - until[start]), start) for start in range(count - 1, stop)
            )
        best.append(row)
    found: list[range] = []
    stop = len(costs)
    for row in reversed(best):
        start = row[stop][1]
        found.append(range(start, stop))
        stop = start
    return tuple(reversed(found))
