"""An agent accepts only a plan that a saver may have made."""

import json
import zlib
from typing import Any

import pytest

from regroup.workers.contract.planned_shards import (
    Container,
    PlanError,
    PlannedFile,
    PlannedPiece,
    PlannedShards,
    unpack_plan,
)

PIECE = PlannedPiece("w", "float32", (4,), (0,), (4,), 0, 4160, 16)
PLAN = PlannedShards((PlannedFile((0, 40), (PIECE,)),), (Container(40, 900, 700),))


def test_a_plan_comes_back_as_it_went() -> None:
    assert unpack_plan(PLAN.packed(), 1) == PLAN


def changed(**parts: Any) -> bytes:
    content = json.loads(zlib.decompress(PLAN.packed()))
    return zlib.compress(json.dumps({**content, **parts}).encode())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no plan", "damaged"),
        (PLAN.packed()[:-2], "incomplete"),
        (changed(files=[]), "0 files instead of 1"),
        (changed(files=[[[0, -1], []]]), "-1 where a size must be"),
        (changed(files=[[[0, 40], [["w", "float32", [4], [0], [4], 1, 0, 16]]]]), "which is none"),
        (changed(files=[[[0, 40], [["w", 32, [4], [0], [4], 0, 0, 16]]]]), "which is none"),
        (changed(files=[[[0, 40], [["w", "float32", [4], [0], [4], 0, 0, True]]]]), "True where a size must be"),
        (changed(containers=[[0, 10, 11]]), "10 bytes with 11 before the data"),
        (changed(containers=None), "damaged"),
    ],
)
def test_any_other_plan_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        unpack_plan(data, 1)
