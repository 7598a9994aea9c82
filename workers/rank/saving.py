"""The snapshot buffers of one rank: which one is written next, what is being copied, which set counts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from regroup.workers.state.buffer import Pin, ShardBuffer
from regroup.workers.state.rotation import buffer_to_write
from regroup.workers.state.snapshot import Copier
from regroup.workers.state.training_state import TrainingState

_PIN_POLL_S = 0.02


@dataclass(frozen=True)
class Taken:
    """A snapshot whose copy was started."""

    buffer: int
    step: int
    pin: Pin


class Snapshots:
    """Takes snapshots into buffers that the agent owns."""

    def __init__(self, device: torch.device) -> None:
        self._copier = Copier(device)
        self._buffers: list[ShardBuffer] = []
        self._protected = -1
        self._newest = -1
        self._copying: Taken | None = None

    @property
    def is_async(self) -> bool:
        """A copy goes on while training does; otherwise it is whole when `take` returns."""
        return self._copier.is_async

    def count(self, pin: Pin) -> int:
        """Buffers that are held for `pin`."""
        return sum(pin in buffer.header().pinned for buffer in self._buffers)

    def use(self, buffers: Sequence[ShardBuffer], source: int) -> None:
        """Write into these; `source` holds the state that was restored, or is -1."""
        self._buffers = list(buffers)
        self._protected = source

    def take(self, state: TrainingState, step: int, place: Mapping[str, int], layout_hash: str, pin: Pin) -> None:
        """Start copying the state of `step`. `place` is this rank's generation, rank and world_size."""
        tensors = state.tensors()
        plan = self._copier.plan(tensors, state.alike)
        number = buffer_to_write([buffer.header() for buffer in self._buffers], self._protected)
        buffer = self._buffers[number]
        buffer.begin(plan, state.facts(step), step=step, layout_hash=layout_hash, **place)
        self._copier.copy(buffer, plan, tensors)
        self._copying = Taken(number, step, pin)

    def finish(self) -> Taken | None:
        """Wait for the copy that was started, if any; from now on the set counts."""
        if self._copying is None:
            return None
        taken, self._copying = self._copying, None
        self._copier.finish()
        self._buffers[taken.buffer].commit(taken.pin)
        self._newest = taken.buffer
        return taken

    def protect_newest(self) -> None:
        """The newest set is whole on every rank: keep it until a newer one is."""
        self._protected = self._newest if self._newest >= 0 else self._protected

    def spoil_newest(self) -> bool:
        """Change one byte of the newest set that counts, as failing memory would; whether there is one."""
        newest = self._newest if self._newest >= 0 else self._protected
        if newest < 0:
            return False
        buffer = self._buffers[newest]
        largest = max(buffer.index().tensors, key=lambda entry: entry.nbytes)
        buffer.view(largest)[largest.nbytes // 2] ^= 1
        return True

    def wait_for_saver(self) -> None:
        """Until no buffer is held for a checkpoint."""
        while self.count(Pin.CHECKPOINT):
            time.sleep(_PIN_POLL_S)
