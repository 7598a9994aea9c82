"""Matrix products and memory copies of one device, while all others of its node do the same."""

from dataclasses import dataclass

import torch

from regroup.workers.probe.timing import Clock

_DTYPES = {
    "cpu": {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64},
    "cuda": {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64},
}
_SIDES = {"cpu": (64, 128, 256, 512), "cuda": (512, 1024, 2048, 4096, 8192)}
_COPIED_BYTES = {"cpu": 32 << 20, "cuda": 1 << 30}
_BURSTS = 3


@dataclass(frozen=True)
class Matmul:
    """A product of square matrices on this rank."""

    dtype: str
    """A value of the spec's `training.precision`."""
    side: int
    flops: float
    """Operations per second."""


def matmuls(clock: Clock, device: torch.device) -> list[Matmul]:
    """Measure products of square matrices in all sizes and data types that training uses."""
    found: list[Matmul] = []
    for dtype, kind in _DTYPES[device.type].items():
        for side in _SIDES[device.type]:
            left, right = (torch.ones(side, side, dtype=kind, device=device) for _ in range(2))
            out = torch.empty_like(left)
            seconds = clock.own_s(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), _BURSTS)
            found.append(Matmul(dtype, side, 2 * side**3 / seconds))
    return found


def memory_bytes_s(clock: Clock, device: torch.device) -> float:
    """Return the bytes per second that a copy reads and writes."""
    size = _COPIED_BYTES[device.type]
    source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * size / clock.own_s(lambda: target.copy_(source), _BURSTS)
