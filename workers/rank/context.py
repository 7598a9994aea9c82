"""What training code sees of the platform: its place, its state that outlives it, and the end of each step.

def train(context):
    model, optimizer = ...
    context.track(model=model, optimizer=optimizer)
    for step in range(context.restore() + 1, steps + 1):
        loss = ...
        loss.backward()
        total = context.agree({"loss": loss.item(), "tokens": count})
        optimizer.step()
        if not context.commit(step, loss=total["loss"] / total["tokens"], tokens=int(total["tokens"])):
            break
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from regroup.workers.contract import Buffers, Join, Message, Phase, Pinned, Restored, StepRow, Stop, WantBuffers
from regroup.workers.parallel.mesh import Place, build_mesh, data_place
from regroup.workers.rank.faults import Faults
from regroup.workers.state.buffer import ShardBuffer
from regroup.workers.state.checkpoint import CheckpointSource
from regroup.workers.state.randomness import seed_random
from regroup.workers.state.rotation import buffer_to_write
from regroup.workers.state.snapshot import Copier, ShardSource, Stateful, TrainingState

_PIN_POLL_S = 0.02


class ChannelPort(Protocol):
    """The rank's end of the channel to its agent."""

    def send(self, message: Message) -> None:
        """Hand a message to the agent."""
        ...

    def request(self, message: Message) -> tuple[Message, Sequence[int]]:
        """Send and wait for the reply, which may carry descriptors."""
        ...

    def poll(self) -> Message | None:
        """A message that has come already, or None."""
        ...


class ProgressPort(Protocol):
    """Where the agent reads what this rank is doing."""

    def set(self, step: int, phase: str) -> None:
        """Note step and phase."""
        ...


@dataclass(frozen=True)
class _Agreement:
    """What all ranks decided in the control all-reduce of this step."""

    stop: bool
    checkpoint: bool
    pin_free: bool


_NOTHING_AGREED = _Agreement(stop=False, checkpoint=False, pin_free=False)


@dataclass(frozen=True)
class _Copying:
    """A snapshot whose copy was started."""

    buffer: int
    step: int
    pin: bool


class Context:
    """One rank's view of one generation. Made by the platform; handed to the training function."""

    def __init__(self, join: Join, channel: ChannelPort, device: torch.device, progress: ProgressPort) -> None:
        self.job_id = join.job_id
        self.config: Mapping[str, Any] = join.config
        self.generation = join.generation
        self.rank = join.rank
        self.world_size = join.world_size
        self.local_rank = join.local_rank
        self.layout: Mapping[str, int] = join.layout
        self.device = device
        self.dataset: Mapping[str, Any] = join.dataset
        self.step = 0
        """Committed steps."""
        self.stopped = False
        """The job was told to stop, and the last `commit` returned False because of it."""
        self.result: dict[str, Any] = {}
        """What the leading rank reports when the training function has returned."""
        self._join = join
        self._channel = channel
        self._progress = progress
        self._faults = Faults(join.config.get("faults", ()), join.faults_fired, join.rank)
        self._state: TrainingState | None = None
        self._copier = Copier(device)
        self._buffers: list[ShardBuffer] = []
        self._protected = -1
        self._newest = -1
        self._copying: _Copying | None = None
        self._agreement = _NOTHING_AGREED
        self._stop_asked = False
        self._last_checkpoint = join.restore.step
        self._checkpoint_clock = self._step_clock = time.monotonic()
        self._stall_s = 0.0

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The mesh of this generation's layout; axes of degree 1 are left out."""
        return build_mesh(self.layout, self.device.type)

    @cached_property
    def data_place(self) -> Place:
        """Which of the ranks that see different samples this is."""
        return data_place(self.layout, self.rank)

    def track(self, *, model: nn.Module, optimizer: Optimizer | None = None, **stateful: Stateful) -> None:
        """Say what the state of the training is, before `restore`. `stateful` things keep plain JSON data."""
        self._state = TrainingState(model, optimizer, stateful, self.device)

    def restore(self) -> int:
        """Take the state back from memory or checkpoint and return the committed steps; 0 if there is none.

        Without a state to restore, random generators start from the job's seed and the data rank.
        """
        self.phase(Phase.RESTORE)
        source = self._join.restore
        state = self._tracked()
        reply, fds = self._channel.request(WantBuffers(self.rank, self.generation, state.buffer_bytes()))
        assert isinstance(reply, Buffers), f"the reply to WantBuffers is Buffers, not {reply!r}"
        self._buffers = [ShardBuffer(fd) for fd in fds[: reply.count]]
        self._protected = reply.source_index
        seed_random(_seed(self.config.get("seed", 0), source.step, self.data_place.index), self.device)
        if source.source == "memory":
            # Descriptors beyond this rank's own are shards of other ranks, sent when the layout changed.
            shards = [self._buffers[reply.source_index]] if reply.source_index >= 0 else []
            shards += [ShardBuffer(fd) for fd in fds[reply.count :]]
            state.restore(ShardSource(shards), self.rank, self.world_size)
        elif source.source == "checkpoint":
            state.restore(CheckpointSource(Path(self._join.checkpoint_dir)), self.rank, self.world_size)
        self.step = source.step
        if self._is_last(self.step):
            # The ranks died between the last step and its checkpoint: it is due again.
            self._snapshot(self.step, pin=True)
            self._finish_snapshot()
        self._channel.send(Restored(self.rank, self.generation, self.step, time.time()))
        self._checkpoint_clock = self._step_clock = time.monotonic()
        return self.step

    def phase(self, name: str) -> None:
        """Say what this rank does next within step `self.step + 1`: for hang detection, and where faults strike."""
        step = self.step + 1
        self._progress.set(step, name)
        self._faults.strike(step, name, self._channel)

    def agree(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Sum each value over all ranks: the one control all-reduce of a step, before the optimizer.

        It also carries what the ranks must decide alike: that the last snapshot is whole everywhere, whether to stop,
        whether to save a checkpoint. Every rank passes the same keys in the same order.
        """
        waiting = time.monotonic()
        self._finish_snapshot()
        self._stall_s += time.monotonic() - waiting
        pin_busy = any(buffer.header().pinned for buffer in self._buffers)
        own = [
            float(not all(math.isfinite(value) for value in values.values())),
            float(self._asked_to_stop()),
            float(self.rank == 0 and self._checkpoint_due(self.step + 1)),
            float(pin_busy),
        ]
        totals = self.sum([*values.values(), *own])
        _, stop, checkpoint, busy = totals[len(values) :]
        self._agreement = _Agreement(stop > 0, checkpoint > 0, busy == 0)
        # Every rank came here after its last copy: that set is whole on all of them.
        self._protected = self._newest if self._newest >= 0 else self._protected
        return {**dict(zip(values, totals, strict=False)), "non_finite_ranks": totals[len(values)]}

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum each value over all ranks, in float64."""
        on_host = self.device.type == "cpu" or "cpu:gloo" in dist.get_backend_config()
        total = torch.tensor(values, dtype=torch.float64, device="cpu" if on_host else self.device)
        dist.all_reduce(total)
        return total.tolist()

    def commit(
        self,
        step: int,
        *,
        loss: float,
        tokens: int,
        samples: int = 0,
        samples_hash: int = 0,
        learning_rate: float = 0.0,
        grad_norm: float = 0.0,
        validation_loss: float | None = None,
        extra: Mapping[str, float] | None = None,
    ) -> bool:
        """After the optimizer: step `step` is done. Report it, and save what is due.

        Returns:
            False when the job is to stop here: return from the training function.
        """
        if step != self.step + 1:
            raise ValueError(f"commit({step}) after step {self.step}: steps are committed one by one")
        now = time.monotonic()
        if self.rank == 0:
            self._channel.send(
                StepRow(
                    self.generation,
                    step,
                    time.time(),
                    now - self._step_clock,
                    loss,
                    tokens,
                    samples,
                    samples_hash,
                    learning_rate,
                    grad_norm,
                    validation_loss,
                    self._stall_s,
                    dict(extra or {}),
                )
            )
        self._step_clock, self._stall_s = now, 0.0
        agreed, self._agreement = self._agreement, _NOTHING_AGREED
        last = self._is_last(step)
        pin = last or (agreed.checkpoint and agreed.pin_free)
        if pin or agreed.stop or step % self.config["snapshot"]["every_steps"] == 0:
            if last:
                self._wait_for_saver()
            self._snapshot(step, pin)
            if pin or agreed.stop or not self._copier.is_async:
                self._finish_snapshot()
            self._stall_s = time.monotonic() - now
        self.step = step
        self.stopped = agreed.stop and not last
        return not self.stopped

    def _snapshot(self, step: int, pin: bool) -> None:
        tensors = self._tracked().tensors()
        plan = self._copier.plan(tensors)
        number = buffer_to_write([buffer.header() for buffer in self._buffers], self._protected)
        buffer = self._buffers[number]
        buffer.begin(
            plan,
            self._tracked().facts(step),
            generation=self.generation,
            step=step,
            rank=self.rank,
            world_size=self.world_size,
            layout_hash=layout_hash(self.layout),
        )
        self._copier.copy(buffer, plan, tensors)
        self.phase(Phase.SNAPSHOT)
        self._copying = _Copying(number, step, pin)

    def _finish_snapshot(self) -> None:
        """Wait for the copy that was started, if any; from now on the set counts."""
        if self._copying is None:
            return
        copying, self._copying = self._copying, None
        self._copier.finish()
        self._buffers[copying.buffer].commit(pinned=copying.pin)
        self._newest = copying.buffer
        if copying.pin:
            self._last_checkpoint, self._checkpoint_clock = copying.step, time.monotonic()
            self._channel.send(Pinned(self.rank, self.generation, copying.step, copying.buffer))
            self.phase(Phase.CHECKPOINT)

    def _is_last(self, step: int) -> bool:
        return step >= self.config["training"]["steps"]

    def _wait_for_saver(self) -> None:
        # The last step is always saved, so it waits for its turn; every other checkpoint is put off instead.
        self._progress.set(self.step + 1, Phase.CHECKPOINT)
        while any(buffer.header().pinned for buffer in self._buffers):
            time.sleep(_PIN_POLL_S)

    def _checkpoint_due(self, step: int) -> bool:
        policy = self.config["checkpoint"]
        steps, seconds = policy.get("every_steps"), policy.get("every")
        # Not "step % every_steps": one that was put off stays due.
        by_steps = steps is not None and step // steps > self._last_checkpoint // steps
        return by_steps or (seconds is not None and time.monotonic() - self._checkpoint_clock >= seconds)

    def _asked_to_stop(self) -> bool:
        while (message := self._channel.poll()) is not None:
            self._stop_asked = self._stop_asked or isinstance(message, Stop)
        return self._stop_asked

    def _tracked(self) -> TrainingState:
        if self._state is None:
            raise RuntimeError("call context.track(model=…, optimizer=…) before restore and commit")
        return self._state


def layout_hash(layout: Mapping[str, int]) -> str:
    """Sixteen characters that tell layouts apart: shards of one set carry the same."""
    return hashlib.sha256(json.dumps(dict(layout), sort_keys=True).encode()).hexdigest()[:16]


def _seed(seed: int, step: int, data_rank: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{step}:{data_rank}".encode()).digest()[:8], "little")
