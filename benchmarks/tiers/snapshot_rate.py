"""Rate of a snapshot: the product's copy with its checksum to a buffer of an agent, and what the first one costs."""

import os
import time
from dataclasses import dataclass

import torch

from benchmarks.trials import stats
from regroup.workers.parallel.mesh import Alike
from regroup.workers.state.memory.preparation import BufferPreparation
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import Copier

_TENSORS = 48
_ALONE = Alike(0, 1)


@dataclass(frozen=True)
class SnapshotRate:
    """Figures of one thread."""

    bytes_per_s: float
    """Copy and checksum, to memory that was prepared."""
    first_bytes_per_s: float
    """The same to memory that was not prepared."""
    prepare_bytes_per_s: float


def measure(size_bytes: int, trials: int) -> SnapshotRate:
    """Measure snapshots of a state of 48 tensors."""
    state = state_of(size_bytes)
    size_bytes = sum(tensor.nbytes for tensor in state.values())
    copier = Copier(torch.device("cpu"))
    plan = copier.plan(state, _ALONE)
    fresh, *buffers = (ShardBuffer(os.memfd_create(f"buffer-{number}")) for number in range(3))

    def snapshot(buffer: ShardBuffer, step: int) -> float:
        begun_s = time.perf_counter()
        buffer.begin(plan, {}, generation=1, step=step, rank=0, world_size=1, layout_hash="x")
        copier.copy(buffer, plan, state)
        copier.finish()
        buffer.commit(regions=copier.regions)
        return time.perf_counter() - begun_s

    first_s = snapshot(fresh, 0)
    fresh.close()
    begun_s = time.perf_counter()
    preparation = BufferPreparation([buffer.memory for buffer in buffers], plan.buffer_bytes)
    preparation.start()
    preparation.wait()
    prepare_s = time.perf_counter() - begun_s
    times = [snapshot(buffers[step % 2], step) for step in range(2 * trials)]
    for buffer in buffers:
        assert buffer.verify(), "the snapshot is intact"
        buffer.close()
    return SnapshotRate(size_bytes / stats.median(times), size_bytes / first_s, 2 * size_bytes / prepare_s)


def state_of(size_bytes: int) -> dict[str, torch.Tensor]:
    """Return random tensors of unequal sizes that together have about this many bytes."""
    generator, left = torch.Generator().manual_seed(1), size_bytes
    state: dict[str, torch.Tensor] = {}
    for number in range(_TENSORS):
        count = max(1, left // (_TENSORS - number) // 4 * (2 + number % 3) // 3)
        state[f"tensor.{number}"] = torch.rand(count, generator=generator)
        left -= count * 4
    return state
