"""Resource use of a step: peak memory, time spent waiting for other ranks, and model FLOPs utilization."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from regroup.workers.os.cpu_time import busy_s

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_PEAK = "VmHWM:"
_PRODUCT = 256
_MEASURED_S = 0.02


class StepMeter:
    """Measures one rank. Its numbers are summed over all ranks, and `facts` interprets the sums."""

    def __init__(self, device: torch.device, dtype: torch.dtype, rank: int, world_size: int) -> None:
        self._device, self._dtype, self._rank, self._world_size = device, dtype, rank, world_size
        self._peak_flops = 0.0
        self._busy_s = self._began_s = self._passed_s = self._waited_s = 0.0
        self._step_ended_s: float | None = None

    def begin(self) -> None:
        """Start measuring memory and waiting, before the forward pass."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            with contextlib.suppress(
                OSError
            ):  # without this file, the kernel reports the peak since the process started
                _CLEAR.write_text(_RESET_PEAK)
        self._began_s, self._busy_s = time.perf_counter(), busy_s() or 0.0

    def end(self) -> None:
        """Stop measuring, after the backward pass."""
        self._passed_s, busy = time.perf_counter() - self._began_s, busy_s()
        self._waited_s = 0.0 if busy is None else max(0.0, self._passed_s - (busy - self._busy_s))

    def measure(self, device_flops: Mapping[str, float]) -> None:
        """Determine the peak FLOP/s of this rank's device.

        Args:
            device_flops: part of a GPU's name → its peak FLOP/s in the data type of the computation. A CPU is measured
                with a matrix product, at the same time on all ranks.
        """
        if self._device.type == "cuda":
            name = torch.cuda.get_device_name(self._device)
            self._peak_flops = next((flops for part, flops in device_flops.items() if part in name), 0.0)
        else:
            self._peak_flops = _cpu_flops(self._dtype)

    def own(self) -> dict[str, float]:
        """Return the numbers of this rank, to be summed over all ranks."""
        peaks = {f"peak {rank}": 0.0 for rank in range(self._world_size)}
        peaks[f"peak {self._rank}"] = float(self._peak_bytes())
        waits = {} if self._device.type == "cuda" else {"waited": self._waited_s, "passed": self._passed_s}
        return {"peak_flops": self._peak_flops, **waits, **peaks}

    def facts(self, total: Mapping[str, float], flops: float) -> dict[str, float]:
        """Return the metrics of a step.

        `peak_bytes` and `peak_rank`: the largest peak memory of a rank, and that rank. `exposed_communication`: the
        average fraction of forward and backward that ranks spend waiting for others (CPUs only). `mfu`: model FLOPs
        utilization since the end of the previous step (Chowdhery et al. 2022), from the third step of a generation on.

        Args:
            total: sums of `own` over all ranks.
            flops: model FLOPs of the step; 0 if unknown.
        """
        now, previous_end_s = time.perf_counter(), self._step_ended_s
        self._step_ended_s = now
        peak, rank = max((total[f"peak {rank}"], -rank) for rank in range(self._world_size))
        found = {"peak_bytes": peak, "peak_rank": float(-rank)}
        if total.get("passed") and self._world_size > 1:
            found["exposed_communication"] = total["waited"] / total["passed"]
        if flops and total["peak_flops"] and previous_end_s is not None:
            found["mfu"] = flops / ((now - previous_end_s) * total["peak_flops"])
        return found

    def _peak_bytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        with contextlib.suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith(_PEAK):
                    return int(line.split()[1]) * 1024
        return 0


def _cpu_flops(dtype: torch.dtype) -> float:
    a, b = (torch.ones(_PRODUCT, _PRODUCT, dtype=dtype) for _ in range(2))
    torch.mm(a, b)
    count, began = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - began) < _MEASURED_S:
        torch.mm(a, b)
        count += 1
    return count * 2 * _PRODUCT**3 / passed_s
