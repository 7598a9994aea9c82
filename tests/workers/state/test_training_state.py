"""Tracked objects are restored exactly, and state that cannot be saved is refused by name."""

import collections
import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from regroup.workers.state import rng_state
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.rng_state import random_state, seed_random, set_random_state
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import Copier, ShardSource, Source
from regroup.workers.state.state_error import StateError
from regroup.workers.state.state_tree import lift, put_back
from regroup.workers.state.tensor_names import is_parameter
from regroup.workers.state.training_state import TrainingState

CPU = torch.device("cpu")
SAVED_NAMES = [
    "embed.weight",
    "ema.embed.weight",
    "optim.embed.weight.step",
    "optim:second.embed.weight.step",
    "buffer.mean",
    "state:metric.total",
]


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


def seen(source: Source) -> RankSource:
    return RankSource(source, 0, 1, "x")


def saved(state: TrainingState, step: int) -> ShardBuffer:
    copier, buffer = Copier(CPU), ShardBuffer(os.memfd_create("state"))
    captured = state.capture(step)
    plan = copier.plan(captured.tensors)
    buffer.begin(plan, captured.facts, generation=1, step=step, rank=0, world_size=1, layout_hash="x")
    copier.copy(buffer, plan, captured.tensors)
    copier.finish()
    buffer.commit()
    assert buffer.verify()
    return buffer


def test_parameters_buffers_optimizer_and_random_numbers_come_back() -> None:
    model, optimizer, counter = stateful_model(1)
    step(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.05
    counter.value = 7
    state = TrainingState({"model": model, "optimizer": optimizer, "counter": counter}, CPU)
    buffer = saved(state, 1)
    drawn = torch.randn(3)
    step(model, optimizer)

    other, other_optimizer, other_counter = stateful_model(2)
    TrainingState({"model": other, "optimizer": other_optimizer, "counter": other_counter}, CPU).restore(
        seen(ShardSource(buffer))
    )
    assert other_counter.value == 7
    assert other_optimizer.param_groups[0]["lr"] == 0.05
    assert torch.equal(torch.randn(3), drawn)
    step(other, other_optimizer)
    for (name, one), value in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(one, value), name


def test_another_model_is_refused_by_name() -> None:
    model, optimizer, counter = stateful_model(1)
    step(model, optimizer)
    source = ShardSource(saved(TrainingState({"model": model, "optimizer": optimizer, "counter": counter}, CPU), 1))

    def restored(**things: Any) -> None:
        own = {"model": model, "optimizer": optimizer, "counter": counter} | things
        TrainingState({name: thing for name, thing in own.items() if thing is not None}, CPU).restore(seen(source))

    def other(*layers: nn.Module) -> dict[str, Any]:
        found = nn.Sequential(*layers)
        return {"model": found, "optimizer": torch.optim.SGD(found.parameters(), lr=0.1)}

    with pytest.raises(StateError, match=r"'0\.weight' has shape \(4, 3\) in the saved state and \(5, 3\)"):
        restored(**other(nn.Linear(3, 5), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    with pytest.raises(StateError, match=r"no '3\.weight'"):
        restored(**other(*model, nn.Linear(1, 1)))
    with pytest.raises(StateError, match=r"has '2\.weight', which this model does not have"):
        restored(**other(*list(model)[:2]))
    with pytest.raises(StateError, match="no 'other'"):
        restored(other=counter)
    with pytest.raises(StateError, match="has 'counter', which is not tracked here"):
        restored(counter=None)


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


def test_another_seed_gives_other_numbers_in_every_generator() -> None:
    def drawn(seed: int) -> tuple[float, ...]:
        seed_random(seed, CPU)
        return (float(torch.rand(1)), random.random(), float(np.random.rand()))

    one, other, large = drawn(1), drawn(2), drawn(2**64 - 1)
    assert drawn(1) == one
    for generator in range(3):
        assert len({one[generator], other[generator], large[generator]}) == 3


def test_a_seed_of_torch_has_63_bits() -> None:
    """Data loaders derive the seeds of their workers from the whole of it."""
    for seed, expected in ((2**62 + 1, 2**62 + 1), (2**63 + 1, 1)):
        seed_random(seed, CPU)
        assert torch.initial_seed() == expected


def test_random_state_of_a_python_without_numpy_is_put_back_in_either(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    with_numpy = random_state(device)
    monkeypatch.setattr(rng_state, "np", None)
    without = random_state(device)
    assert set(with_numpy) - set(without) == {"numpy"}
    drawn = torch.rand(3)
    for state in (with_numpy, without):
        set_random_state(state, device)
        assert torch.equal(torch.rand(3), drawn)
    monkeypatch.undo()
    set_random_state(without, device)
    assert torch.equal(torch.rand(3), drawn)


def test_only_parameters_count_as_parameters() -> None:
    assert [name for name in SAVED_NAMES if is_parameter(name)] == ["embed.weight", "ema.embed.weight"]


class Metric:
    """Something whose state is made of tensors and of keys that JSON lacks."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def many_things(seed: int) -> dict[str, Any]:
    """Build averaged weights, two optimizers that share no parameter, schedules and a scaler."""
    torch.manual_seed(seed)
    model, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    second = torch.optim.SGD(
        [{"params": critic[0].parameters()}, {"params": critic[1].parameters(), "lr": 0.5}], lr=0.2, momentum=0.9
    )
    return {
        "model": model,
        "critic": critic,
        "ema": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
        "optimizer": optimizer,
        "second": second,
        "schedule": CosineAnnealingLR(optimizer, 10),
        "milestones": MultiStepLR(second, [2, 2, 5]),
        "scaler": torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2),
        "metric": Metric(total=torch.zeros(2, dtype=torch.float64), seen={3: torch.zeros(()), "a": (1, [None, 2.5])}),
    }


def update(things: dict[str, Any]) -> None:
    loss = things["critic"](things["model"](torch.randn(4, 3))).pow(2).sum()
    things["scaler"].scale(loss).backward()
    for name in ("optimizer", "second"):
        things["scaler"].step(things[name])
        things[name].zero_grad()
    things["scaler"].update()
    things["schedule"].step()
    things["milestones"].step()
    things["ema"].update_parameters(things["model"])
    metric = things["metric"].state
    metric["total"] += float(loss.detach())
    metric["seen"][3] += 1


def test_many_objects_are_restored_and_continue_equally() -> None:
    things = many_things(1)
    for _ in range(3):
        update(things)
    state = TrainingState(things, CPU)
    state.check()
    buffer = saved(state, 3)
    names = set(state.capture(3).tensors)
    assert {"weight", "critic.0.weight", "ema.weight", "buffer.critic.1.running_mean", "buffer.ema.n_averaged"} <= names
    assert {"optim.weight.exp_avg", "optim:second.critic.0.weight.momentum_buffer"} <= names
    assert {"state:metric.total", "state:metric.seen.3"} <= names
    update(things)

    others = many_things(2)
    TrainingState(others, CPU).restore(seen(ShardSource(buffer)))
    assert others["second"].param_groups[1]["lr"] == pytest.approx(0.5 * 0.01)
    assert others["metric"].state["seen"]["a"] == (1, [None, 2.5])
    assert isinstance(others["milestones"].milestones, collections.Counter)
    update(others)
    for name in things:
        if isinstance(things[name], nn.Module):
            for key, value in things[name].state_dict().items():
                assert torch.equal(value, others[name].state_dict()[key]), f"{name}.{key}"
    assert things["metric"].state["total"].equal(others["metric"].state["total"])
    assert int(others["metric"].state["seen"][3]) == 4
    for name in ("schedule", "milestones", "scaler"):
        assert things[name].state_dict() == others[name].state_dict()


def test_a_state_of_one_model_has_short_names() -> None:
    model, optimizer, counter = stateful_model(1)
    step(model, optimizer)
    captured = TrainingState({"model": model, "optimizer": optimizer, "counter": counter}, CPU).capture(1)
    assert {"0.weight", "optim.0.weight.momentum_buffer", "buffer.1.running_var"} <= set(captured.tensors)
    assert captured.facts["stateful"] == {"counter": {"value": 0}}
    assert captured.facts["optimizers"]["optimizer"]["groups"][0]["values"]["momentum"] == 0.9


@pytest.mark.parametrize(
    ("things", "error"),
    [
        (lambda: {"metric": Metric(seen=[{"at": object()}])}, r"state:metric\.seen\.0\.at is a builtins\.object"),
        (lambda: {"metric": Metric(seen={(1, 2): 0})}, r"state:metric\.seen has a key of type tuple"),
        (lambda: {"metric": 5}, r"'metric' is a int without state_dict"),
        (lambda: {"buffer": nn.Linear(1, 1)}, r"cannot be tracked as 'buffer'"),
        (lambda: {"optimizer": torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=1)}, r"'optimizer' updates .*\(1, 3\)"),
        (
            lambda: {"model": nn.ModuleDict({"ema": nn.Linear(1, 1)}), "ema": nn.Linear(1, 1)},
            r"two tracked modules have a tensor 'ema\.weight'",
        ),
    ],
)
def test_state_that_cannot_be_saved_is_named(things: Any, error: str) -> None:
    with pytest.raises(StateError, match=error):
        TrainingState(things(), CPU).check()


def test_a_parameter_that_two_modules_share_is_kept_once() -> None:
    backbone = nn.Linear(2, 2)
    state = TrainingState({"model": nn.Sequential(backbone, nn.Linear(2, 1)), "backbone": backbone}, CPU)
    assert sorted(state.capture(0).tensors) == ["0.bias", "0.weight", "1.bias", "1.weight"]


def test_step_counters_that_are_plain_numbers_are_restored() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["count"] = 5
    buffer = saved(TrainingState({"model": model, "optimizer": optimizer}, CPU), 1)
    other = nn.Linear(1, 1)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    TrainingState({"model": other, "optimizer": other_optimizer}, CPU).restore(seen(ShardSource(buffer)))
    assert other_optimizer.state[other.weight] == {"count": 5}
    two_groups = torch.optim.SGD([{"params": [other.weight]}, {"params": [other.bias]}], lr=0.1)
    with pytest.raises(StateError, match="1 parameter groups of 'optimizer', but the optimizer has 2"):
        TrainingState({"model": other, "optimizer": two_groups}, CPU).restore(seen(ShardSource(buffer)))


def test_an_added_group_is_added_again_and_other_groups_are_refused() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
    optimizer.add_param_group({"params": [model.bias], "lr": 0.2})
    buffer = saved(TrainingState({"model": model, "optimizer": optimizer}, CPU), 1)
    other = nn.Linear(1, 1)
    both_in_one = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(StateError, match="parameter group 0 of 'optimizer' has 2 parameters here and 1 in the saved"):
        TrainingState({"model": other, "optimizer": both_in_one}, CPU).restore(seen(ShardSource(buffer)))
    frozen = nn.Linear(1, 1)
    late = torch.optim.SGD([frozen.weight], lr=0.1)
    TrainingState({"model": frozen, "optimizer": late}, CPU).restore(seen(ShardSource(buffer)))
    assert [group["lr"] for group in late.param_groups] == [0.1, 0.2]
    assert late.param_groups[1]["params"] == [frozen.bias]


def test_a_sparse_tensor_is_as_coalesced_as_it_was() -> None:
    twice = torch.sparse_coo_tensor([[1, 2, 1]], [1.0, 4.0, 2.0], (3,), is_coalesced=False, check_invariants=True)
    for tensor in (twice, twice.coalesce()):
        lifted = lift({"s": tensor}, "x")
        restored = put_back(lifted.plain, lifted.tensors)["s"]
        assert restored.is_coalesced() == tensor.is_coalesced()
        assert torch.equal(restored.to_dense(), tensor.to_dense())


def test_plain_json_data_is_kept_as_it_is() -> None:
    plain = {"cursor": 5, "nested": {"x": [1, 2.5, None, True, "s"]}}
    assert lift(plain, "s").plain == plain
    unusual = {1: (2, {"$tuple": 3}), "k": collections.Counter({4: 2})}
    assert put_back(lift(unusual, "s").plain, {}) == unusual
    with pytest.raises(StateError, match=r"two tensors of the state are called 's\.a\.b'"):
        lift({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, "s")
