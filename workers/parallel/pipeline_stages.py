"""The cuts of a pipeline, and the stages of each rank. Pure."""

from collections.abc import Sequence
from itertools import accumulate

LOOPED = ("interleaved_1f1b", "interleaved_zero_bubble")
"""Schedules in which a rank holds every p-th stage."""
V_SHAPED = ("zbv",)
"""Schedules in which a rank holds one descending and one ascending stage: rank 0 holds the first and the last."""
SINGLE = ("gpipe", "1f1b")
"""Schedules with one stage per rank."""
STAGES_OF_A_RANK = 2
"""Stages per rank in looped and V-shaped schedules."""


def stage_count(schedule: str, ranks: int) -> int:
    """Return the number of stages of the whole pipeline."""
    return ranks if schedule in SINGLE else ranks * STAGES_OF_A_RANK


def stages_of(schedule: str, ranks: int, rank: int) -> tuple[int, ...]:
    """Return the stages of one pipeline rank, in ascending order."""
    if schedule in V_SHAPED:
        return (rank, 2 * ranks - 1 - rank)
    return tuple(range(rank, stage_count(schedule, ranks), ranks))


def rank_of_last(schedule: str, ranks: int) -> int:
    """Return the pipeline rank that computes the loss."""
    return 0 if schedule in V_SHAPED else ranks - 1


def idle_share(busy_s: Sequence[float], ranks: int, pass_s: float) -> float:
    """Return the fraction of forward and backward in which a pipeline rank is idle: the bubble, and waiting.

    Args:
        busy_s: seconds of computation by stage.
        ranks: pipeline degree.
        pass_s: duration of forward and backward, in seconds.
    """
    return 1 - sum(busy_s) / (ranks * pass_s)


def bubble(schedule: str, ranks: int, micro_batches: int) -> float | None:
    """Return the theoretical idle fraction for equal stages (Narayanan et al. 2021, §2.2).

    None for schedules that fill the bubble with weight gradients: their idle time depends on the duration of those.
    """
    if schedule not in SINGLE and schedule != "interleaved_1f1b":
        return None
    rounds = micro_batches * stage_count(schedule, ranks) // ranks
    return (ranks - 1) / (rounds + ranks - 1)


def cut(costs: Sequence[float], stages: int) -> tuple[range, ...]:
    """Return the consecutive blocks of each stage, so that the most expensive stage is as cheap as possible.

    Among equal cuts, choose the one with shorter early stages. Every stage has at least one block.

    Args:
        costs: cost of each block, including layers before the first and after the last one.
        stages: number of stages, at most the number of blocks.
    """
    assert 1 <= stages <= len(costs), f"{len(costs)} blocks cannot form {stages} stages"
    until = [0.0, *accumulate(costs)]
    # best[k][n]: cost of the most expensive stage when n blocks form k stages, and the start of the last stage.
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
