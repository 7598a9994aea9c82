"""Restart check of one rank of a program that saves its own state (`regroup run --check`).

Every generation sends digests of what its optimizers train, after each step, and ends at an agreed step. If the next
generation continues from a checkpoint of the program, it repeats steps, and the supervisor compares them.
"""

import time
from collections.abc import Callable

from torch.optim import Optimizer

from regroup.workers.contract import messages
from regroup.workers.contract.restart_check import PROGRAM_STOPS
from regroup.workers.rank.ports import ChannelPort


def wait_for_the_end() -> None:
    """Wait until this process is ended from outside."""
    while True:
        time.sleep(3600)


class ProgramCheck:
    """The part of one rank in one generation."""

    def __init__(self, join: messages.Join, channel: ChannelPort, wait: Callable[[], None] = wait_for_the_end) -> None:
        """Initialize the check. `wait` is called where the generation ends."""
        self._join, self._channel, self._wait = join, channel, wait
        self._is_on = join.config.verifies_restart
        self._stop = PROGRAM_STOPS[min(join.generation, len(PROGRAM_STOPS)) - 1]

    def end_step(self, step: int, optimizer: Optimizer) -> None:
        """Send the digest after `step`. At the agreed step, wait for the end of the process.

        The program still is within its step, so it has not saved it. The next generation repeats at least this step.
        """
        if not self._is_on or step > self._stop:
            return
        from regroup.workers.state.state_digest import digest_optimizer  # programs that are not checked start faster

        place = self._join.rank, self._join.generation
        self._channel.send(messages.StateDigest(*place, step, digest_optimizer(optimizer)))
        if step == self._stop:
            self._channel.send(messages.Done(*place, step, stopped=True))
            self._wait()
