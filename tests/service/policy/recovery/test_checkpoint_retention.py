import pytest

from regroup.service.policy.recovery.checkpoint_retention import (
    FinishedCheckpoint,
    UnfinishedCheckpoint,
    find_abandoned,
    find_surplus,
)


def checkpoint(step: int, loss: float | None = None, pinned: bool = False) -> FinishedCheckpoint:
    return FinishedCheckpoint(f"/s/step-{step}.gen-1", 1, step, loss, pinned)


@pytest.mark.parametrize(
    ("have", "last", "best", "gone"),
    [
        ([checkpoint(1), checkpoint(2), checkpoint(3)], 2, 0, [1]),
        ([checkpoint(3), checkpoint(1), checkpoint(2)], 0, 0, [1, 2]),
        ([checkpoint(1, pinned=True), checkpoint(2), checkpoint(3)], 1, 0, [2]),
        ([checkpoint(1, 0.5), checkpoint(2, 0.1), checkpoint(3, 0.1), checkpoint(4)], 1, 1, [1, 2]),
        ([checkpoint(1)], 1, 1, []),
    ],
)
def test_the_newest_the_best_and_pinned_checkpoints_are_kept(
    have: list[FinishedCheckpoint], last: int, best: int, gone: list[int]
) -> None:
    assert [item.step for item in find_surplus(have, keep_last=last, keep_best=best)] == gone


def test_unfinished_checkpoints_of_ended_generations_are_abandoned() -> None:
    uris = ["/s/step-8.gen-1", "/s/step-16.gen-2", "/s/step-24.gen-2"]
    assert find_abandoned(uris, (), 1) == []
    assert find_abandoned(uris, (), 2) == [UnfinishedCheckpoint("/s/step-8.gen-1", 1, 8)]
    assert find_abandoned(uris, {"/s/step-24.gen-2"}, 1) == [UnfinishedCheckpoint("/s/step-24.gen-2", 2, 24)]


def test_folders_with_other_names_are_ignored() -> None:
    assert find_abandoned(["/s/best", "/s/step-8", "/s/step-8.gen-1.old", "/s/step-x.gen-1"], (), 9) == []
