"""How long something takes that ranks do together: in bursts, so that the clock and one late rank weigh little."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import distributed as dist

_BURST_S = 0.05
"""What is shorter is done again until a burst takes so long."""
_MOST_TIMES = 200
_BURSTS = 5


class Clock:
    """Times what every rank of the job calls at the same place of its program."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def own_s(self, work: Callable[[], object], bursts: int = _BURSTS) -> float:
        """Seconds of one `work` on this rank, while all others do theirs: the median of some bursts.

        How often it is done is agreed on, so work of several ranks that wait for each other is done as often by all.
        """
        work()
        times = max(1, min(_MOST_TIMES, int(_BURST_S / max(self.slowest([self._burst_s(work, 1)])))))
        return median(self._burst_s(work, times) for _ in range(bursts))

    def slowest_s(self, work: Callable[[], object]) -> float:
        """Seconds of one `work` on the rank that takes longest."""
        return self.slowest([self.own_s(work)])[0]

    def slowest(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over all ranks; nobody goes on before all are here."""
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
    """What every rank has, by rank, on every rank."""
    every: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every
