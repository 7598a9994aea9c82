"""Whether devices compute right: products of whole numbers, which are exact in whatever order a device adds them up.

Runs as a task forked from a zygote, so that a device that hangs, or takes the process down, takes nothing else with it.
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
"""A GPU multiplies this many times as many rows and columns: each of its processors has a part of them."""
_CPU_BUDGET_S = 0.3
"""Cores that have had no turn by then are left out: the check must not be felt."""
PRODUCT_SHA256 = "6d0d708efd07fa0cc4605fe7b8fdec6a4bcd898875bbf644674aa201ba14e9c7"
"""Of the product as little-endian 32-bit integers."""
_GPU_TYPES = (torch.float32, torch.float16, torch.bfloat16)

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(args: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Check every core this process may use, or these CUDA devices; a task of the zygote.

    Args:
        args: `device` (`cpu` or `cuda`) and the `indexes` of CUDA devices.

    Returns:
        `failed`: what is wrong, for people; `seconds`.
    """
    started = time.monotonic()
    failed = wrong_cores(torch.matmul) if args["device"] == "cpu" else wrong_gpus(args["indexes"], torch.matmul)
    return {"failed": failed, "seconds": time.monotonic() - started}


def wrong_cores(multiply: Multiply) -> list[str]:
    """Cores that multiply wrongly, one after the other within the budget."""
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    turn = os.getpid() % len(cores)  # where there are too many for one check, the next begins with others
    started, failed = time.monotonic(), list[str]()
    try:
        for core in cores[turn:] + cores[:turn]:
            os.sched_setaffinity(0, {core})
            left, right = _factors()
            product = multiply(left.to(torch.float32), right.to(torch.float32)).to(torch.int32)
            if _digest(product) != PRODUCT_SHA256:
                failed.append(f"core {core} multiplies wrongly: a product of whole numbers is not what it must be")
            if time.monotonic() - started > _CPU_BUDGET_S:
                break
    finally:
        os.sched_setaffinity(0, cores)
    return failed


def wrong_gpus(indexes: list[int], multiply: Multiply) -> list[str]:
    """CUDA devices that are not there or multiply wrongly."""
    there = torch.cuda.device_count()
    failed = [f"CUDA device {index} is not there: {there} are seen" for index in indexes if index >= there]
    left, right = _factors()
    product = left @ right  # of integers: not by the units that are checked
    for index in (index for index in indexes if index < there):
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
    """Of -1, 0 and 1, in an order without a pattern."""
    steps = torch.arange(2 * SIDE * SIDE, dtype=torch.int64)
    mixed = steps * steps % 4294967291 * 1103515245 % 4294967291
    values = ((mixed >> 8) % 3 - 1).to(torch.int32)
    return values[: SIDE * SIDE].view(SIDE, SIDE), values[SIDE * SIDE :].view(SIDE, SIDE)


def _digest(product: torch.Tensor) -> str:
    size_bytes = product.numel() * product.element_size()  # numpy need not be there
    return hashlib.sha256(ctypes.string_at(product.contiguous().data_ptr(), size_bytes)).hexdigest()
