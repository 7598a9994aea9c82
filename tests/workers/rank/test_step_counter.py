"""Counting the steps of programs that know nothing of it: real optimizers, messages as the agent would get them."""

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.optim import Optimizer, optimizer  # pyright: ignore[reportAttributeAccessIssue]

from regroup.workers.contract.messages import FaultDue, FaultGranted, Join, Message, Phase, Restore, Restored, StepRow
from regroup.workers.contract.progress_page import ProgressPage, new_page
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.state_loads import _PLACES
from regroup.workers.rank.step_counter import StepCounter
from tests.support.inputs.rank_configs import fault


class Agent:
    """Records the messages to the agent, and denies every fault."""

    def __init__(self) -> None:
        self.received: list[Message] = []

    def send(self, message: Message) -> None:
        self.received.append(message)

    def request(self, message: Message, fds: Sequence[int] = ()) -> tuple[Message, list[int]]:
        assert isinstance(message, FaultDue)
        self.received.append(message)
        return FaultGranted(message.index, False), []

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]


@pytest.fixture(autouse=True)
def no_hooks_left() -> Iterator[None]:
    originals = [(owner, name, getattr(owner, name)) for owner, name in _PLACES]
    yield
    for owner, name, original in originals:
        setattr(owner, name, original)
    for hooks in (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks):
        hooks.clear()


def counting(*, rank: int = 0, reached: int = 0, faults: Any = ()) -> tuple[StepCounter, Agent, ProgressPage]:
    agent, progress = Agent(), ProgressPage(new_page())
    join = Join(
        "j",
        2,
        rank,
        2,
        rank,
        2,
        0,
        1,
        {},
        "cpu",
        "h",
        1,
        Restore("none", reached),
        "script:x",
        RankConfig(faults=tuple(faults)),
    )
    count = StepCounter(join, cast(Channel, agent), progress)
    count.begin()
    return count, agent, progress


def model() -> nn.Module:
    return nn.Linear(2, 2)


def step(module: nn.Module, *optimizers: Optimizer) -> None:
    module(torch.ones(1, 2)).sum().backward()
    for each in optimizers:
        each.step()


def test_rank_0_reports_every_step_and_all_ranks_show_progress() -> None:
    for rank, rows in ((0, [1, 2, 3]), (1, [])):
        count, agent, progress = counting(rank=rank)
        assert progress.read() == (1, Phase.BUILD)
        module = model()
        adam = torch.optim.AdamW(module.parameters(), lr=0.5)
        for _ in range(3):
            step(module, adam)
        assert count.step == 3
        assert progress.read() == (4, Phase.FORWARD)
        assert [row.step for row in agent.of(StepRow)] == rows
        assert {(row.loss, row.tokens, row.samples, row.learning_rate) for row in agent.of(StepRow)} <= {
            (None, None, None, 0.5)
        }
        count.end()
        assert progress.read() == (3, Phase.DONE)
        optimizer._global_optimizer_pre_hooks.clear()
        optimizer._global_optimizer_post_hooks.clear()


def sgd(module: nn.Module) -> Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def momentum(module: nn.Module) -> Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "resumed", "expected"),
    [
        (lambda module: torch.optim.AdamW(module.parameters()), True, (5, True)),
        (lambda module: torch.optim.AdamW(module.parameters()), False, (0, True)),
        (momentum, False, (0, True)),
        (momentum, True, (7, False)),
        (sgd, True, (7, False)),
        (sgd, False, (0, True)),
    ],
)
def test_the_optimizer_state_gives_the_step_where_a_script_continues(
    make: Callable[[nn.Module], Optimizer], resumed: bool, expected: tuple[int, bool]
) -> None:
    module = model()
    before = make(module)
    for _ in range(5):
        step(module, before)
    saved = copy.deepcopy(before.state_dict())
    count, agent, _ = counting(reached=7)
    after = make(module)
    if resumed:
        after.load_state_dict(saved)
    step(module, after)
    (restored,) = agent.of(Restored)
    assert (restored.step, restored.has_step_count) == expected
    assert count.step == expected[0] + 1


def test_optimizers_that_take_turns_make_one_step_together() -> None:
    count, agent, _ = counting()
    module = model()
    one, other = torch.optim.AdamW(module.parameters()), momentum(module)
    for _ in range(3):
        step(module, one, other)
    assert count.step == 3 and len(agent.of(StepRow)) == 3
    third = sgd(module)  # a new optimizer, the only one from now on
    for _ in range(3):
        step(module, third)
    assert count.step == 5


def test_faults_are_due_at_their_step_and_phase() -> None:
    planned = [fault(0, number, "sigkill", phase)
               for number, phase in ((1, "forward"), (2, "optimizer"), (4, "forward"))]  # fmt: skip
    _, agent, _ = counting(faults=planned)
    module = model()
    adam = torch.optim.AdamW(module.parameters())
    due: list[int] = []
    for _ in range(3):
        step(module, adam)
        due.append(len(agent.of(FaultDue)))
    assert due == [1, 2, 3]


@pytest.mark.parametrize("load", ["module", "file"])
def test_a_script_that_loads_state_without_a_count_has_an_unknown_step(load: str, tmp_path: Path) -> None:
    saved, file = model().state_dict(), tmp_path / "saved.pt"
    torch.save(saved, file)
    count, agent, _ = counting(reached=7)
    module = model()
    module.load_state_dict(saved) if load == "module" else torch.load(file)
    step(module, sgd(module))
    (restored,) = agent.of(Restored)
    assert (restored.step, restored.has_step_count) == (7, False) and count.step == 8
