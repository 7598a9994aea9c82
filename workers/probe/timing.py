"""Timing of work that all ranks do at the same time."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import distributed as dist

_BURST_S = 0.05
"""Minimum duration of a burst. Shorter work is repeated."""
_MOST_TIMES = 200
_BURSTS = 5


class Clock:
    """A stopwatch for work that all ranks call at the same place of the program."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def own_s(self, work: Callable[[], object], bursts: int = _BURSTS) -> float:
        """Return the seconds of one `work` on this rank while all others run theirs: the median of several bursts.

        All ranks agree on the number of repetitions, so ranks may wait for each other within `work`.
        """
        work()
        times = max(1, min(_MOST_TIMES, int(_BURST_S / max(self.slowest([self._burst_s(work, 1)])))))
        return median(self._burst_s(work, times) for _ in range(bursts))

    def slowest_s(self, work: Callable[[], object]) -> float:
        """Return the seconds of one `work` on the slowest rank."""
        return self.slowest([self.own_s(work)])[0]

    def slowest(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of each value over all ranks. Also a barrier."""
        largest = torch.tensor(values, dtype=torch.float64)  # on the host: over gloo, whatever the device is
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest.tolist()

    def _burst_s(self, work: Callable[[], object], times: int) -> float:
        self.slowest([0.0])
        began = time.perf_counter()
        for _ in range(times):
            work()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return max(1e-9, (time.perf_counter() - began) / times)


def gathered(own: object) -> list[object]:
    """Return the objects of all ranks, by rank, on every rank."""
    every: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every
