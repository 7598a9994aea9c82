"""What a formation keeps of what its ranks said, for a supervisor that was not there."""

from typing import Any

import pytest

from regroup.workers.contract import Joined, StepRow, to_json
from regroup.workers.node.formation import Formation


def row(step: int) -> StepRow:
    return StepRow(1, step, 3.0, 0.1, 1.0, 8, 4, 0, 0.1, 1.0, extra={"all_reduce": 1.0})


@pytest.mark.parametrize(("steps", "kept"), [([], []), ([1], [1]), ([1, 2, 3], [1, 3])])
async def test_of_the_steps_the_first_and_the_newest_are_told_again(steps: list[int], kept: list[int]) -> None:
    told: list[Any] = []
    zygote, local, unused = (object(),) * 3
    formation = Formation(1, zygote, told.append, unused, unused)  # type: ignore[arg-type]  # no rank is forked
    formation._handle(local, Joined(0, 1, 2.0))  # type: ignore[arg-type]
    for step in steps:
        formation._handle(local, row(step))  # type: ignore[arg-type]
    assert [to_json(message) for message in formation.heard()] == [
        to_json(message) for message in (Joined(0, 1, 2.0), *map(row, kept))
    ]
    assert len(told) == 1 + len(steps)
