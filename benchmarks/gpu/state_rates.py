"""Rates between device and snapshot buffer, compared with pinned copies, and what a snapshot costs a step.

A snapshot is timed with the product's own copier into memory files like those of an agent. The limits are copies of the
same tensors from and to pinned memory, and the time of the step without a copy.
"""

import os
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from benchmarks.gpu.program import Given, parse
from regroup.workers.parallel.mesh import Alike
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import Copier, ShardSource

_TRIALS = 5
_ALONE = Alike(0, 1)


def main() -> int:
    """Measure every rate."""
    given = parse(__doc__)
    device = torch.device(given.device)
    sizes = [16 << 20] if given.is_dry else [1 << 30, 4 << 30, 12 << 30]
    for size_bytes in sizes:
        state = _state(size_bytes, device)
        _measure(given, state, device, size_bytes)
        del state
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return 0


def _measure(given: Given, state: dict[str, Tensor], device: torch.device, size_bytes: int) -> None:
    label, bytes_now = f"{size_bytes >> 20}MiB", sum(tensor.nbytes for tensor in state.values())
    copy_s, load_s = _pinned_copies_s(state, device)
    copier, buffers = Copier(device), [ShardBuffer(os.memfd_create(f"buffer-{number}")) for number in range(2)]
    plan = copier.plan(state, _ALONE)
    snapshots: list[float] = []
    commits: list[float] = []
    for step in range(2 * _TRIALS):
        buffer = buffers[step % 2]
        begun_s = time.perf_counter()
        buffer.begin(plan, {}, generation=1, step=step, rank=0, world_size=1, layout_hash="x")
        copier.copy(buffer, plan, state)
        copier.finish()
        copied_s = time.perf_counter()
        buffer.commit()
        snapshots.append(copied_s - begun_s)
        commits.append(time.perf_counter() - copied_s)
    warm_s = median(snapshots[2:])
    given.values.record(f"pinned_copy_bytes_per_s.{label}", bytes_now / copy_s)
    given.values.record(f"snapshot_bytes_per_s.{label}", bytes_now / warm_s, all_s=snapshots)
    given.values.record(f"checksum_bytes_per_s.{label}", bytes_now / median(commits))
    given.values.record(f"snapshot_d2h_ratio.{label}", copy_s / warm_s)
    _check_restore(given, state, buffers[(2 * _TRIALS - 1) % 2], device, load_s, label)
    if device.type == "cuda":
        _measure_step_cost(given, state, copier, buffers, label)


def _pinned_copies_s(state: dict[str, Tensor], device: torch.device) -> tuple[float, float]:
    """Return the seconds of a copy to pinned memory and back."""
    on_gpu = device.type == "cuda"
    pinned = {name: torch.empty_like(each, device="cpu", pin_memory=on_gpu) for name, each in state.items()}
    return _time(device, lambda: _copy(state, pinned)), _time(device, lambda: _copy(pinned, state))


def _check_restore(
    given: Given, state: dict[str, Tensor], buffer: ShardBuffer, device: torch.device, load_s: float, label: str
) -> None:
    """Restore into other tensors, compare every bit, and record the rate."""
    targets = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    source = ShardSource(buffer)
    begun_s = time.perf_counter()
    source.read(targets)
    _wait(device)
    seconds, total = time.perf_counter() - begun_s, sum(tensor.nbytes for tensor in state.values())
    assert all(torch.equal(targets[name], tensor) for name, tensor in state.items()), "the restored state differs"
    given.values.record(f"restore_bytes_per_s.{label}", total / seconds, ratio_to_pinned=load_s / seconds)


def _measure_step_cost(
    given: Given, state: dict[str, Tensor], copier: Copier, buffers: list[ShardBuffer], label: str
) -> None:
    """Record how much longer matrix products take while a snapshot is copied."""
    device = torch.device("cuda")
    left = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)

    def work() -> None:
        for _ in range(60):
            torch.mm(left, left)

    alone_s = _time(device, work)
    plan, times, blocked = copier.plan(state, _ALONE), list[float](), list[float]()
    for step in range(_TRIALS):
        buffer = buffers[step % 2]
        buffer.begin(plan, {}, generation=1, step=100 + step, rank=0, world_size=1, layout_hash="x")
        _wait(device)
        begun_s = time.perf_counter()
        copier.copy(buffer, plan, state)
        blocked.append(time.perf_counter() - begun_s)
        work()
        torch.cuda.current_stream().synchronize()
        times.append(time.perf_counter() - begun_s)
        copier.finish()
        buffer.commit()
    given.values.record(f"step_beside_snapshot_ratio.{label}", median(times) / alone_s, alone_s=alone_s)
    given.values.record(f"snapshot_blocks_host_s.{label}", median(blocked))


def _state(size_bytes: int, device: torch.device) -> dict[str, Tensor]:
    """Return random tensors of unequal sizes that together have about this many bytes."""
    generator = torch.Generator(device=device).manual_seed(1)
    left, state = size_bytes, dict[str, Tensor]()
    for number in range(48):
        count = max(1, left // (48 - number) // 4 * (2 + number % 3) // 3)
        state[f"tensor.{number}"] = torch.rand(count, generator=generator, device=device)
        left -= count * 4
    return state


def _copy(sources: dict[str, Tensor], targets: dict[str, Tensor]) -> None:
    for name, source in sources.items():
        targets[name].copy_(source, non_blocking=True)


def _time(device: torch.device, work: Callable[[], object]) -> float:
    """Return the median seconds of some calls after a first one."""
    times: list[float] = []
    for _ in range(_TRIALS + 1):
        _wait(device)
        begun_s = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - begun_s)
    return median(times[1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
