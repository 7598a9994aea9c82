"""A program in a restart check: digests after each step, and an end within the agreed step."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regroup.workers.contract.messages import Done, Join, Message, Restore, StateDigest
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.restart_check import PROGRAM_STOPS
from regroup.workers.rank.program_check import ProgramCheck


class Waiting(Exception):
    """The rank waits here for its end."""


class Sent(list[Message]):
    """Records the messages to the agent."""

    def send(self, message: Message) -> None:
        self.append(message)

    def request(self, message: Message, fds: Sequence[int] = ()) -> Any:
        raise NotImplementedError

    def poll(self) -> None:
        return None


def wait() -> None:
    raise Waiting


def check_of(generation: int, sent: Sent, *, is_on: bool = True) -> ProgramCheck:
    config = RankConfig(verifies_restart=is_on)
    join = Join("j", generation, 1, 2, 1, 2, 0, 1, {}, "cpu", "h", 1, Restore("none"), "script:x", config)
    return ProgramCheck(join, sent, wait)


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)


@pytest.mark.parametrize("generation", [1, 2, len(PROGRAM_STOPS) + 3])
def test_a_rank_sends_every_step_and_waits_within_the_agreed_one(
    generation: int, optimizer: torch.optim.Optimizer
) -> None:
    stop = PROGRAM_STOPS[min(generation, len(PROGRAM_STOPS)) - 1]
    check = check_of(generation, sent := Sent())
    for step in range(1, stop):
        check.end_step(step, optimizer)
    with pytest.raises(Waiting):
        check.end_step(stop, optimizer)
    *digests, done = sent
    assert [(each.rank, each.step) for each in digests if isinstance(each, StateDigest)] == [
        (1, step) for step in range(1, stop + 1)
    ]
    assert done == Done(1, generation, stop, stopped=True)


def test_a_program_that_is_not_checked_sends_nothing(optimizer: torch.optim.Optimizer) -> None:
    check = check_of(1, sent := Sent(), is_on=False)
    for step in range(1, 20):
        check.end_step(step, optimizer)
    assert sent == []
