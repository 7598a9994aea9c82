"""State of a device: a snapshot is the state of its step, although training continues, and returns bitwise."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from regroup.workers.rank.snapshots import Snapshots
from regroup.workers.state.page_locks import PageLocks
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.state.snapshot import ShardSource
from regroup.workers.state.training_state import TrainingState

PLACE = {"generation": 1, "rank": 0, "world_size": 1}
WIDTH = 256


@pytest.fixture
def buffers() -> Iterator[list[ShardBuffer]]:
    created = [ShardBuffer(os.memfd_create("shard")) for _ in range(3)]
    yield created
    for buffer in created:
        buffer.close()


def tracked(device: torch.device, seed: int) -> tuple[nn.Module, torch.optim.Optimizer, TrainingState]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)).to(device)
    model[2].to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, TrainingState({"model": model, "optimizer": optimizer}, device)


def forward_and_backward(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    optimizer.zero_grad()
    hidden = model[1](model[0](torch.randn(32, WIDTH, device=device)))  # pyright: ignore[reportIndexIssue]
    model[2](hidden.to(torch.bfloat16)).float().pow(2).mean().backward()  # pyright: ignore[reportIndexIssue]


def values(state: TrainingState) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in state.capture(0).tensors.items()}


def test_a_snapshot_is_the_state_of_its_step_and_is_restored_bitwise(device: str, buffers: list[ShardBuffer]) -> None:
    where = torch.device(device)
    model, optimizer, state = tracked(where, seed=1)
    snapshots = Snapshots(where)
    snapshots.use(buffers, -1)
    expected: dict[str, torch.Tensor] = {}
    for step in range(1, 8):
        forward_and_backward(model, optimizer, where)
        snapshots.finish_copy()
        optimizer.step()
        snapshots.protect_newest()
        expected = values(state)
        snapshots.start_copy(state, step, PLACE, "x", Pin.NONE)
    forward_and_backward(model, optimizer, where)  # writes buffers of the module during the copy
    snapshots.finish_copy()
    optimizer.step()
    newest = snapshots.newest()
    assert newest is not None and newest.verify() and newest.header().step == 7

    _, _, fresh = tracked(where, seed=2)
    fresh.restore(RankSource(ShardSource(newest), 0, 1, "x"))
    restored = values(fresh)
    assert restored.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(restored[name], tensor), name


@pytest.mark.cuda
def test_the_runtime_locks_the_pages_of_a_buffer() -> None:
    device = torch.device("cuda", 0)
    memory = torch.empty(1 << 20, dtype=torch.uint8)
    locks = PageLocks(device)
    assert not memory.is_pinned()
    locks.request(1, memory.data_ptr(), memory.nbytes, memory)
    locks.wait()
    assert memory.is_pinned()
    locks.release(1)
    locks.wait()
    assert not memory.is_pinned()
