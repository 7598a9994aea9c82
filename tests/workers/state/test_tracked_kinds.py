"""Each kind of object that training code tracks continues equally after every restore.

A restore follows a kill, the loss of a node, a resume from disk or a resize. State that cannot be restored is refused
by name.
"""

import collections
import enum
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regroup.workers.state.rng_state import seed_random
from regroup.workers.state.snapshot import Source
from regroup.workers.state.state_error import StateError
from regroup.workers.state.training_state import TrainingState
from tests.support.doubles.saved_ranks import CPU, view_of
from tests.support.inputs.tracked_kinds import KINDS, Things, Update, network, with_model, with_optimizer
from tests.workers.state.conftest import RanksOf

BEFORE, AFTER = range(1, 4), range(4, 7)
"""Steps before the snapshot, and after it."""


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


def begin(build: Callable[[], Things], seed: int) -> Things:
    seed_random(seed, CPU)
    return build()


def advance(things: Things, update: Update, steps: Iterable[int]) -> None:
    for step in steps:
        update(things, step)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("kind", KINDS)
async def test_it_continues_equally_after_a_restore(kind: str, ranks_of: RanksOf, tmp_path: Path) -> None:
    build, code = KINDS[kind]
    undisturbed, update, ranks = begin(build, 1), code(), ranks_of(1)
    state = ranks.state(undisturbed, 0)
    state.check()
    advance(undisturbed, update, BEFORE)
    ranks.save(0, state)
    advance(undisturbed, update, AFTER)
    expected = content_of(undisturbed)
    sources: dict[str, Source] = {
        "a kill": ranks.memory(0),
        "the loss of a node": await ranks.mirrored(0),
        "a restore from disk": ranks.checkpoint(tmp_path / "saved"),
    }
    for event, source in sources.items():
        restored, update_again = begin(build, 2), code()
        own = ranks.state(restored, 0)
        own.check()
        own.restore(view_of(source, 0, 1))
        advance(restored, update_again, AFTER)
        assert content_of(restored) == expected, event


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("kind", KINDS)
async def test_it_continues_equally_with_another_number_of_ranks(kind: str, ranks_of: RanksOf, tmp_path: Path) -> None:
    build, code = KINDS[kind]
    undisturbed, update, ranks = begin(build, 1), code(), ranks_of(2)
    state = ranks.state(undisturbed, 0)
    advance(undisturbed, update, BEFORE)
    ranks.save(0, state)
    ranks.save(1, ranks.state(undisturbed, 1))
    seed_random(3, CPU)
    advance(undisturbed, update, AFTER)
    expected = content_of(undisturbed)
    sources: dict[str, tuple[Source, int, int]] = {
        "a resize to three ranks after the loss of a node": (await ranks.mirrored(), 2, 3),
        "a resume with one rank": (ranks.checkpoint(tmp_path / "saved"), 0, 1),
    }
    for event, (source, rank, world_size) in sources.items():
        restored, update_again = begin(build, 2), code()
        ranks.state(restored, rank).restore(view_of(source, rank, world_size))
        seed_random(3, CPU)  # random state belongs to a rank: with another number of ranks, each gets new numbers
        advance(restored, update_again, AFTER)
        assert content_of(restored) == expected, event


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("kind", KINDS)
async def test_ranks_that_differ_get_their_own_back_and_cannot_change_their_number(
    kind: str, ranks_of: RanksOf, tmp_path: Path
) -> None:
    build, code = KINDS[kind]
    names = sorted(begin(build, 1))
    ranks, expected = ranks_of(2, per_rank=names), list[str]()
    for rank in range(2):
        own, update = begin(build, 4 + rank), code()
        state = ranks.state(own, rank)
        advance(own, update, BEFORE)
        ranks.save(rank, state)
        advance(own, update, AFTER)
        expected.append(content_of(own))
    sources: dict[int, Source] = {0: await ranks.mirrored(), 1: ranks.checkpoint(tmp_path / "saved")}
    for rank, source in sources.items():
        restored, update_again = begin(build, 2), code()
        ranks.state(restored, rank).restore(view_of(source, rank, 2))
        advance(restored, update_again, AFTER)
        assert content_of(restored) == expected[rank], type(source).__name__
    for source in sources.values():
        with pytest.raises(StateError, match=r"^'[^']+' differs between ranks, .* give its layout one size"):
            ranks.state(begin(build, 2), 0).restore(view_of(source, 0, 3))


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
