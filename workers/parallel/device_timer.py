"""Time that a device spends on marked sections."""

import time
from types import TracebackType

import torch


class DeviceTimer:
    """Sums the time between entering and leaving it: of the process on a CPU, of the stream on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._began_s = self._total_s = 0.0
        self._events: list[torch.cuda.Event] = []

    def __enter__(self) -> None:
        self._mark(entering=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._mark(entering=False)

    def reset(self) -> None:
        """Reset the total to zero."""
        self._total_s, self._events = 0.0, []

    def total_s(self) -> float:
        """Return the seconds since `reset`. On a GPU, wait for the last section to finish."""
        if self._on_gpu and self._events:
            self._events[-1].synchronize()
            pairs = zip(self._events[::2], self._events[1::2], strict=True)
            self._total_s = sum(begin.elapsed_time(end) for begin, end in pairs) / 1000
        return self._total_s

    def _mark(self, *, entering: bool) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        elif entering:
            self._began_s = time.perf_counter()
        else:
            self._total_s += time.perf_counter() - self._began_s
