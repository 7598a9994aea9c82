"""State that differs between ranks: each rank gets its own back from memory and from disk, and never a mixture."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from regroup.workers.state.snapshot import Source
from regroup.workers.state.state_error import StateError
from regroup.workers.state.training_state import TrainingState
from regroup.workers.torch_internals.groups import fake_groups
from tests.support.doubles.saved_ranks import CPU, SavedRanks, view_of
from tests.workers.state.conftest import RanksOf


class Average:
    """An object whose state is a tensor and a number that belong together."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"mean": torch.zeros(2), "count": 0}

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def build(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1), "average": Average()}


def train(things: Mapping[str, Any], rank: int, steps: int = 3) -> None:
    """Train without averaging gradients, as local SGD does between two synchronizations."""
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        loss = things["model"](torch.randn(4, 3, generator=generator)).pow(2).mean()
        things["optimizer"].zero_grad()
        loss.backward()
        things["optimizer"].step()
        things["average"].state["mean"] += loss.detach()
        things["average"].state["count"] += rank + 1


def content(things: Mapping[str, Any]) -> str:
    states = {
        "model": {name: value.tolist() for name, value in things["model"].state_dict().items()},
        "moments": [
            [value.tolist() for value in own.values()] for own in things["optimizer"].state_dict()["state"].values()
        ],
        "average": [things["average"].state["mean"].tolist(), things["average"].state["count"]],
    }
    return json.dumps(states)


def trained(ranks: SavedRanks) -> list[str]:
    """Train and save every rank. Return their states."""
    contents: list[str] = []
    for rank in range(ranks.count):
        things = build(1)
        train(things, rank)
        ranks.save(rank, ranks.state(things, rank))
        contents.append(content(things))
    return contents


def restored(ranks: SavedRanks, source: Source, rank: int, world_size: int) -> str:
    things = build(2)
    ranks.state(things, rank).restore(view_of(source, rank, world_size))
    return content(things)


@pytest.mark.parametrize("per_rank", [(), ("model", "optimizer", "average")], ids=["not declared", "declared"])
async def test_each_rank_gets_its_own_state_back(ranks_of: RanksOf, per_rank: Sequence[str], tmp_path: Path) -> None:
    ranks = ranks_of(3, per_rank=per_rank)
    expected = trained(ranks)
    assert len(set(expected)) == 3
    disk = ranks.checkpoint(tmp_path)
    for rank in range(3):
        assert restored(ranks, disk, rank, 3) == expected[rank], f"rank {rank} from disk"
        assert restored(ranks, ranks.memory(rank), rank, 3) == expected[rank], f"rank {rank} from memory"
        assert restored(ranks, await ranks.mirrored(rank), rank, 3) == expected[rank], f"rank {rank} from a mirror"


def test_another_number_of_ranks_gets_the_whole_state_of_one_rank(ranks_of: RanksOf, tmp_path: Path) -> None:
    ranks = ranks_of(3)
    expected = trained(ranks)
    disk = ranks.checkpoint(tmp_path)
    assert {restored(ranks, disk, rank, 2) for rank in range(2)} == {expected[0]}


async def test_declared_state_is_refused_for_another_number_of_ranks(ranks_of: RanksOf, tmp_path: Path) -> None:
    ranks = ranks_of(2, per_rank=["average"])
    trained(ranks)
    sources: list[Source] = [ranks.checkpoint(tmp_path), ranks.memory(), await ranks.mirrored()]
    for source in sources:
        with pytest.raises(
            StateError, match=r"'state:average\.mean' differs between ranks, .* give its layout one size"
        ):
            restored(ranks, source, 0, 3)


def test_equal_state_is_written_once(ranks_of: RanksOf, tmp_path: Path) -> None:
    ranks = ranks_of(2)
    for rank in range(2):
        things = build(1)
        train(things, 0)
        ranks.save(rank, ranks.state(things, rank))
    assert ranks.differing() == ()
    assert not [name for name in ranks.checkpoint(tmp_path).tensors() if name.startswith("own")]


def test_only_what_differs_is_written_for_each_rank(ranks_of: RanksOf, tmp_path: Path) -> None:
    ranks = ranks_of(2)
    for rank in range(2):
        things = build(1)
        train(things, 0)
        things["model"][1].running_mean += rank
        ranks.save(rank, ranks.state(things, rank))
    names = {name for name in ranks.checkpoint(tmp_path).tensors() if name.startswith("own")}
    assert names == {f"own:1:buffer.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}


def test_a_group_that_may_differ_is_not_an_error_and_does_not_count_as_one(ranks_of: RanksOf) -> None:
    ranks = ranks_of(2, is_checked=True)
    for rank in range(2):
        things = build(1)
        train(things, 0)
        things["average"].state["mean"] += rank
        ranks.save(rank, ranks.state(things, rank))
    assert sum(buffer.skew() for buffer in ranks.buffers) == 0
    assert ranks.buffers[0].digests() == ranks.buffers[1].digests() != {}
    assert len(ranks.differing()) == 1


def test_a_sharded_object_cannot_differ_by_rank() -> None:
    with fake_groups(2):
        mesh, model = init_device_mesh("cpu", (2,)), nn.Linear(2, 2, bias=False)
        model.weight = nn.Parameter(DTensor.from_local(torch.ones(1, 2), mesh, [Shard(0)], run_check=False))
        with pytest.raises(StateError, match="'weight' is sharded over ranks, so 'model' cannot be tracked per rank"):
            TrainingState({"model": model}, CPU, per_rank=["model"]).check()
