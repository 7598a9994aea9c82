"""Cuts are the best there are; every stage is on one rank."""

from itertools import combinations

import pytest

from regroup.workers.parallel.pipeline_stages import bubble, cut, idle_share, rank_of_last, stage_count, stages_of

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv")


@pytest.mark.parametrize(
    "costs", [[1.0, 1, 1, 1], [10.0, 1, 1, 1, 1], [1.0, 1, 1, 6], [3.0, 1, 4, 1, 5, 9, 2, 6], [0.0, 0, 5]]
)
def test_no_other_cut_has_a_cheaper_costliest_stage(costs: list[float]) -> None:
    for stages in range(1, len(costs) + 1):
        found = cut(costs, stages)
        assert [block for part in found for block in part] == list(range(len(costs)))
        assert len(found) == stages and all(found)
        others = [
            max(sum(costs[a:b]) for a, b in zip((0, *inner), (*inner, len(costs)), strict=True))
            for inner in combinations(range(1, len(costs)), stages - 1)
        ]
        assert max(sum(costs[block] for block in part) for part in found) == min(others)


def test_a_heavy_head_makes_the_last_stage_shorter() -> None:
    assert cut([1, 1, 1, 1, 1, 4], 2) == (range(4), range(4, 6))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_stage_is_on_one_rank_and_the_loss_where_the_last_is(schedule: str, ranks: int) -> None:
    held = [stages_of(schedule, ranks, rank) for rank in range(ranks)]
    assert sorted(stage for stages in held for stage in stages) == list(range(stage_count(schedule, ranks)))
    assert stage_count(schedule, ranks) - 1 in held[rank_of_last(schedule, ranks)]
    assert all(stages == tuple(sorted(stages)) for stages in held)


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches", "share"),
    [("gpipe", 4, 4, 3 / 7), ("1f1b", 4, 16, 3 / 19), ("1f1b", 8, 32, 7 / 39), ("interleaved_1f1b", 8, 8, 7 / 23)],
)
def test_bubbles_are_those_of_the_literature(schedule: str, ranks: int, micro_batches: int, share: float) -> None:
    assert bubble(schedule, ranks, micro_batches) == pytest.approx(share)
    assert bubble("zbv", ranks, micro_batches) is None


def test_what_is_not_busy_is_idle() -> None:
    # Two stages that take 1 s and 2 s a micro-batch, three micro-batches: eight seconds until the last is done.
    assert idle_share([3.0, 6.0], 2, 8.0) == pytest.approx(1 - 9 / 16)
