"""Count the optimizer steps of any program, through torch's global optimizer hooks.

Several optimizers that alternate (generator and discriminator, or nested optimizers) form one step: a new step starts
when an optimizer repeats. Steps are numbered over the whole job, not per generation. If the optimizer's state contains
a step count, as Adam's does, that count is used. A program that has loaded no state before its first step starts from
its beginning.
"""

import threading
import time
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from regroup.workers.contract.messages import Join, Phase, Restored, StepRow
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.rank import own_process
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.faults.faults import Faults
from regroup.workers.rank.program_check import ProgramCheck
from regroup.workers.rank.state_loads import StateLoads


class StepCounter:
    """Publishes progress on every rank, and reports each step from rank 0."""

    def __init__(self, join: Join, channel: Channel, progress: ProgressPage) -> None:
        self.step = join.restore.step
        """Number of completed steps."""
        self._join, self._channel, self._progress = join, channel, progress
        self._faults, self._check = Faults(join), ProgramCheck(join, channel)
        self._lock = threading.Lock()
        self._turn: set[int] = set()
        """Optimizers that have already run in the newest step."""
        self._first: tuple[float, bool] | None = None
        """Start time of this generation's first step, and True if its optimizer already had state."""
        self._loaded: int | None = None
        """Step count of the loaded state, if known."""
        self._loads = StateLoads()
        self._ended_s: float | None = None
        """Monotonic time of the newest step's end."""

    def begin(self) -> None:
        """Start counting."""
        self._loads.watch()
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        self._progress.set(self.step + 1, Phase.BUILD)
        self._faults.inject(self.step + 1, Phase.FORWARD, self._channel)

    def set_loaded_steps(self, step: int) -> None:
        """Set the step count of the state being loaded. A count in the optimizer's state has priority."""
        self._loaded = step

    def end(self) -> None:
        """Publish that the program is done."""
        self._progress.set(self.step, Phase.DONE)

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if own_process.is_forked():
            return
        with self._lock:
            if self._first is None:
                self._first = (time.time(), bool(optimizer.state))
            self._progress.set(self.step + 1, Phase.OPTIMIZER)
            self._faults.inject(self.step + 1, Phase.OPTIMIZER, self._channel)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if own_process.is_forked():
            return
        with self._lock:
            if self._turn and id(optimizer) not in self._turn:
                self._turn.add(id(optimizer))
                return
            self._turn = {id(optimizer)}
            now = time.monotonic()
            if self._ended_s is None:
                self._resume(optimizer)
            self.step += 1
            if self._join.rank == 0:
                duration_s = None if self._ended_s is None else now - self._ended_s
                self._channel.send(_row(self._join.generation, self.step, duration_s, optimizer))
            self._ended_s = now
            self._progress.set(self.step + 1, Phase.FORWARD)
            self._faults.inject(self.step + 1, Phase.FORWARD, self._channel)
            self._check.end_step(self.step, optimizer)

    def _resume(self, optimizer: Optimizer) -> None:
        """Determine the number of earlier steps after the first step, and send it."""
        assert self._first is not None, "a step ends after it began"
        began_s, had_state = self._first
        counted = _steps_taken(optimizer)
        is_new = not had_state and bool(optimizer.state)
        if counted is not None:
            self.step = counted - 1
        elif self._loaded is not None:
            self.step = self._loaded
        elif is_new or not self._loads.count:
            self.step = 0
        has_count = counted is not None or is_new or self._loaded is not None or not self._loads.count
        self._channel.send(Restored(self._join.rank, self._join.generation, self.step, began_s, has_count))


def _steps_taken(optimizer: Optimizer) -> int | None:
    """Return the step count in the optimizer's state, which is saved with it; None if it has none."""
    counts: list[int] = []
    for state in optimizer.state.values():
        count = state.get("step") if isinstance(state, dict) else None
        if isinstance(count, int | float) or (isinstance(count, torch.Tensor) and count.numel() == 1):
            counts.append(int(count))
    return max(counts, default=None)


def _row(generation: int, step: int, duration_s: float | None, optimizer: Optimizer) -> StepRow:
    rate = optimizer.param_groups[0].get("lr")
    return StepRow(
        generation,
        step,
        time.time(),
        duration_s,
        loss=None,
        tokens=None,
        samples=None,
        samples_hash=None,
        learning_rate=None if rate is None else float(rate),
        grad_norm=None,
    )
