"""Any set of shards that covers a tensor gives back any box of it."""

import itertools
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regroup.workers.parallel.mesh import Box
from regroup.workers.state.buffer import Entry, Plan, ShardBuffer
from regroup.workers.state.randomness import random_state, seed_random, set_random_state
from regroup.workers.state.snapshot import (
    Copier,
    ShardSource,
    StateError,
    TrainingState,
    assemble,
    intersect,
    is_parameter,
    tensor_in,
)

CPU = torch.device("cpu")


def shards_of(whole: torch.Tensor, cuts: list[int]) -> list[tuple[ShardBuffer, Entry]]:
    """The tensor cut along its first dimension, each part in a buffer of its own."""
    edges = [0, *sorted(min(cut, whole.shape[0]) for cut in cuts), whole.shape[0]]
    held: list[tuple[ShardBuffer, Entry]] = []
    for start, stop in itertools.pairwise(edges):
        part = whole[start:stop].contiguous()
        plan = Plan([Entry("w", "float32", tuple(whole.shape), (start, 0), tuple(part.shape), part.numel() * 4)])
        buffer = ShardBuffer(os.memfd_create("shard"))
        buffer.begin(plan, {}, generation=1, step=1, rank=0, world_size=1, layout_hash="x")
        tensor_in(buffer, plan.entries[0]).copy_(part)
        buffer.commit()
        held.append((buffer, plan.entries[0]))
    return held


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    start=st.integers(0, 12),
    size=st.integers(0, 12),
)
def test_boxes_are_assembled_from_whatever_cut(rows: int, cuts: list[int], start: int, size: int) -> None:
    whole = torch.arange(rows * 3, dtype=torch.float32).view(rows, 3)
    start = min(start, rows)
    size = min(size, rows - start)
    held = shards_of(whole, cuts)
    target = torch.full((size, 3), -1.0)
    # Replicas of a shard are filled once.
    assemble("w", Box((rows, 3), (start, 0), (size, 3)), target, [*held, *held])
    assert torch.equal(target, whole[start : start + size])
    for buffer, _ in held:
        buffer.close()


def test_what_the_shards_do_not_cover_is_an_error() -> None:
    held = shards_of(torch.ones(6, 3), [2])
    with pytest.raises(StateError, match="cover 6 of 18 values of 'w'"):
        assemble("w", Box((6, 3), (0, 0), (6, 3)), torch.empty(6, 3), held[:1])


def test_boxes_meet_or_do_not() -> None:
    assert intersect((0, 2), (4, 4), (2, 0), (4, 4)) == ((2, 4), (2, 4))
    assert intersect((0,), (2,), (2,), (2,)) is None
    assert intersect((), (), (), ()) == ()


class Counter:
    """Something else that must survive."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def stateful_model(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Counter]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), Counter()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 3)).pow(2).mean().backward()
    optimizer.step()


def saved(state: TrainingState, step: int) -> ShardBuffer:
    copier, buffer = Copier(CPU), ShardBuffer(os.memfd_create("state"))
    plan = copier.plan(state.tensors())
    buffer.begin(plan, state.facts(step), generation=1, step=step, rank=0, world_size=1, layout_hash="x")
    copier.copy(buffer, plan, state.tensors())
    copier.finish()
    buffer.commit()
    assert buffer.verify()
    return buffer


def test_parameters_buffers_optimizer_and_random_numbers_come_back() -> None:
    model, optimizer, counter = stateful_model(1)
    step(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.05
    counter.value = 7
    state = TrainingState(model, optimizer, {"counter": counter}, CPU)
    buffer = saved(state, 1)
    drawn = torch.randn(3)
    step(model, optimizer)

    other, other_optimizer, other_counter = stateful_model(2)
    TrainingState(other, other_optimizer, {"counter": other_counter}, CPU).restore(ShardSource([buffer]), 0, 1)
    assert other_counter.value == 7
    assert other_optimizer.param_groups[0]["lr"] == 0.05
    assert torch.equal(torch.randn(3), drawn)
    step(other, other_optimizer)
    for (name, one), value in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(one, value), name


def test_another_model_is_refused_by_name() -> None:
    model, optimizer, counter = stateful_model(1)
    step(model, optimizer)
    source = ShardSource([saved(TrainingState(model, optimizer, {"counter": counter}, CPU), 1)])
    wider = nn.Sequential(nn.Linear(3, 5))
    with pytest.raises(StateError, match=r"'0\.weight' has shape \(4, 3\) in the saved state and \(5, 3\)"):
        TrainingState(wider, None, {}, CPU).restore(source, 0, 1)
    with pytest.raises(StateError, match=r"no '3\.weight'"):
        TrainingState(nn.Sequential(*model, nn.Linear(1, 1)), None, {}, CPU).restore(source, 0, 1)
    with pytest.raises(StateError, match="no 'other'"):
        TrainingState(model, optimizer, {"other": counter}, CPU).restore(source, 0, 1)


def test_random_state_is_put_back_for_every_generator() -> None:
    import random

    import numpy as np

    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.normal()), float(torch.rand(()))

    seed_random(5, CPU)
    first = draw()
    state = random_state(CPU)
    second = draw()
    set_random_state(state, CPU)
    assert draw() == second
    seed_random(5, CPU)
    assert draw() == first


def test_only_parameters_count_as_parameters() -> None:
    assert [is_parameter(name) for name in ("embed.weight", "optim.embed.weight.step", "buffer.mean")] == [
        True,
        False,
        False,
    ]
