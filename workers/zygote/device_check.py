"""Check that devices compute correctly, with products of whole numbers. These are exact in any order of summation.

The check runs as a task forked from a zygote. A device that hangs or crashes the process affects nothing else.
"""

import ctypes
import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch

SIDE = 256
"""Small enough for sums of such products to be exact in bfloat16 as well."""
_TILES = 8
"""Factor for the rows and columns on a GPU, so that each of its processors gets a part."""
_CPU_BUDGET_S = 0.3
"""Time limit of the check in seconds. It skips the remaining cores, so that a start is not delayed."""
PRODUCT_SHA256 = "6d0d708efd07fa0cc4605fe7b8fdec6a4bcd898875bbf644674aa201ba14e9c7"
"""Digest of the product as little-endian 32-bit integers."""
_GPU_TYPES = (torch.float32, torch.float16, torch.bfloat16)

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Check every core that this process may use, or the given CUDA devices. A task of the zygote.

    Args:
        args: `device` (`cpu` or `cuda`) and the `indexes` of CUDA devices.

    Returns:
        `failed`: messages for people; `seconds`: duration.
    """
    started = time.monotonic()
    failed = wrong_cores(torch.matmul) if args["device"] == "cpu" else wrong_gpus(args["indexes"], torch.matmul)
    return {"failed": failed, "seconds": time.monotonic() - started}


def wrong_cores(multiply: Multiply) -> list[str]:
    """Return a message for each core that multiplies wrongly. Checks one core after another within the time limit."""
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    first = os.getpid() % len(cores)  # if there are too many cores for one check, the next starts with others
    started, failed = time.monotonic(), list[str]()
    try:
        for core in cores[first:] + cores[:first]:
            os.sched_setaffinity(0, {core})
            left, right = _factors()
            product = multiply(left.to(torch.float32), right.to(torch.float32)).to(torch.int32)
            if _digest(product) != PRODUCT_SHA256:
                failed.append(f"core {core} multiplies wrongly: a product of whole numbers is not exact")
            if time.monotonic() - started > _CPU_BUDGET_S:
                break
    finally:
        os.sched_setaffinity(0, cores)
    return failed


def wrong_gpus(indexes: list[int], multiply: Multiply) -> list[str]:
    """Return a message for each CUDA device that is missing or multiplies wrongly."""
    count = torch.cuda.device_count()
    failed = [f"CUDA device {index} is missing: this node has {count}" for index in indexes if index >= count]
    left, right = _factors()
    product = left @ right  # of integers: not computed by the units under test
    for index in (index for index in indexes if index < count):
        try:
            wrong = [str(kind) for kind in _GPU_TYPES if not _is_right(index, kind, left, right, product, multiply)]
        except RuntimeError as error:
            failed.append(f"CUDA device {index} cannot be used: {str(error).splitlines()[0]}")
            continue
        if wrong:
            failed.append(f"CUDA device {index} multiplies wrongly in {', '.join(wrong)}")
    return failed


def _is_right(
    index: int, kind: torch.dtype, left: torch.Tensor, right: torch.Tensor, product: torch.Tensor, multiply: Multiply
) -> bool:
    device = torch.device("cuda", index)
    tall = left.to(device, kind).repeat(_TILES, 1)
    wide = right.to(device, kind).repeat(1, _TILES)
    expected = product.to(device, torch.float32).repeat(_TILES, _TILES)
    return bool(torch.equal(multiply(tall, wide).to(torch.float32), expected))


def _factors() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two matrices of -1, 0 and 1 in an order without a pattern."""
    steps = torch.arange(2 * SIDE * SIDE, dtype=torch.int64)
    mixed = steps * steps % 4294967291 * 1103515245 % 4294967291
    values = ((mixed >> 8) % 3 - 1).to(torch.int32)
    return values[: SIDE * SIDE].view(SIDE, SIDE), values[SIDE * SIDE :].view(SIDE, SIDE)


def _digest(product: torch.Tensor) -> str:
    size_bytes = product.numel() * product.element_size()  # numpy may be missing
    return hashlib.sha256(ctypes.string_at(product.contiguous().data_ptr(), size_bytes)).hexdigest()
