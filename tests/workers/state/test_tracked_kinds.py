"""Each kind of object that training code tracks continues equally after a restore from memory and from disk."""

import collections
import enum
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regroup.workers.state.checkpoint import CheckpointSource, save_shards, write_metadata
from regroup.workers.state.rank_source import RankSource
from regroup.workers.state.rng_state import seed_random
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import Copier, ShardSource, Source
from regroup.workers.state.state_error import StateError
from regroup.workers.state.training_state import TrainingState
from tests.support.inputs.tracked_kinds import KINDS, Things, network, with_model, with_optimizer

CPU = torch.device("cpu")
STEPS_BEFORE, STEPS_AFTER = 3, 3


def plain(value: Any) -> Any:
    """Return a state in a form that can be compared exactly."""
    if isinstance(value, Tensor):
        dense = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
        content = torch.view_as_real(dense) if dense.is_complex() else dense
        return (str(value.layout), str(value.dtype), tuple(value.shape), content.double().tolist())
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tolist())
    if isinstance(value, dict):
        items = value.items() if isinstance(value, collections.OrderedDict) else sorted(value.items(), key=repr)
        return (type(value).__name__, [(key, plain(item)) for key, item in items])
    if isinstance(value, list | tuple | collections.deque):
        return (type(value).__name__, [plain(item) for item in value])
    return (type(value).__name__, repr(value))


def content_of(things: Things) -> str:
    states = {name: plain(thing.state_dict()) for name, thing in things.items()}
    modules = [module for thing in things.values() if isinstance(thing, nn.Module) for module in thing.modules()]
    flags = [[module.training, *(each.requires_grad for each in module.parameters())] for module in modules]
    return json.dumps([states, flags, torch.rand(2).tolist()], default=repr)


def save(state: TrainingState, step: int, fd: int) -> ShardBuffer:
    copier, buffer = Copier(CPU), ShardBuffer(fd)
    captured = state.capture(step)
    plan = copier.plan(captured.tensors)
    buffer.begin(plan, captured.facts, generation=1, step=step, rank=0, world_size=1, layout_hash="x")
    copier.copy(buffer, plan, captured.tensors)
    copier.finish()
    buffer.commit()
    return buffer


def write_checkpoint(fd: int, folder: Path) -> CheckpointSource:
    done = save_shards({"directory": str(folder), "shards": [{"rank": 0}], "differing": []}, [fd])
    parts = os.memfd_create("parts")
    os.write(parts, json.dumps([done]).encode())
    write_metadata({"directory": str(folder)}, [parts])
    os.close(parts)
    return CheckpointSource(folder)


def begin(build: Callable[[], Things], seed: int) -> Things:
    seed_random(seed, CPU)
    return build()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("kind", KINDS)
def test_it_continues_equally_after_a_restore(kind: str, tmp_path: Path) -> None:
    build, code = KINDS[kind]
    undisturbed, update = begin(build, 1), code()
    state = TrainingState(undisturbed, CPU)
    state.check()
    for step in range(1, STEPS_BEFORE + 1):
        update(undisturbed, step)
    fd = os.memfd_create("state")
    buffer = save(state, STEPS_BEFORE, fd)
    for step in range(STEPS_BEFORE + 1, STEPS_BEFORE + STEPS_AFTER + 1):
        update(undisturbed, step)
    expected = content_of(undisturbed)
    sources: list[Source] = [ShardSource([buffer]), write_checkpoint(fd, tmp_path / "saved")]
    for source in sources:
        restored, update_again = begin(build, 2), code()
        own = TrainingState(restored, CPU)
        own.check()
        own.restore(RankSource(source, 0, 1, "x"))
        for step in range(STEPS_BEFORE + 1, STEPS_BEFORE + STEPS_AFTER + 1):
            update_again(restored, step)
        assert content_of(restored) == expected, type(source).__name__
    buffer.close()


class Keyed(torch.optim.SGD):
    """An optimizer whose state_dict has a key that torch does not document."""

    def state_dict(self) -> Any:
        return super().state_dict() | {"lookahead": 1}


class Mode(enum.Enum):
    FAST = "fast"


class Holder:
    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


Point = collections.namedtuple("Point", "x y")


def contains_itself() -> Things:
    state: dict[str, Any] = {}
    state["again"] = state
    return {"holder": Holder(**state)}


def group_of_another_module() -> Things:
    things = with_model(network)()
    things["optimizer"].add_param_group({"params": nn.Linear(5, 7).parameters()})
    return things


REFUSED: dict[str, tuple[Callable[[], Things], str]] = {
    "key of an optimizer": (with_optimizer(Keyed), r"state_dict\(\) of 'optimizer' has an entry 'lookahead'"),
    "group": (group_of_another_module, r"'optimizer' updates a parameter of shape \(7, 5\) \(group 1\)"),
    "lazy": (lambda: {"model": nn.LazyLinear(3)}, r"'weight' of 'model' is a lazy parameter .* run one forward pass"),
    "meta": (lambda: {"model": nn.Linear(2, 2, device="meta")}, r"'weight' of 'model' is on the meta device"),
    "enum": (lambda: {"holder": Holder(mode=Mode.FAST)}, r"state:holder\.mode is a .*Mode, which cannot be saved"),
    "named tuple": (lambda: {"holder": Holder(at=Point(1, 2))}, r"state:holder\.at is a .*Point, which cannot"),
    "factory": (
        lambda: {"holder": Holder(found=collections.defaultdict(lambda: 3))},
        r"state:holder\.found is a defaultdict whose default_factory, .*, cannot be saved",
    ),
    "cycle": (contains_itself, r"state:holder\.again\.again.* is nested in more than 100 levels"),
    "objects": (lambda: {"holder": Holder(of=np.array([None]))}, r"state:holder\.of is a numpy array of type object"),
    "generator": (lambda: {"holder": Holder(own=np.random.default_rng(1))}, r"state:holder\.own is a numpy.*Generator"),
    "nested": (
        lambda: {"holder": Holder(of=torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged))},
        r"state:holder\.of is a nested tensor",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Lazy modules are a new feature")
@pytest.mark.parametrize("kind", REFUSED)
def test_state_that_would_be_lost_is_refused_before_the_first_step(kind: str) -> None:
    build, message = REFUSED[kind]
    with pytest.raises(StateError, match=message):
        TrainingState(build(), CPU).check()
