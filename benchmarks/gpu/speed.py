"""Throughput of the built-in trainer in bf16, compared with a plain compiled loop and with bare matrix products.

The plain loop uses the same model code, batch and optimizer, and no platform: no snapshots, messages or checks. A
utilization is (6 × parameters + 12 × layers × dim × sequence) FLOPs per token (Chowdhery et al. 2022, appendix B),
divided by the rate of large matrix products on this device.
"""

import asyncio
import sys
import time
from itertools import pairwise
from statistics import median
from typing import cast

import torch

from benchmarks.gpu.bare_job import started
from benchmarks.gpu.program import LARGE, TOY, Given, Size, parse, spec
from regroup.service.spec.models import TransformerModel
from regroup.workers.contract.messages import Done, StepRow
from regroup.workers.models import Model, build_model

_WARM_UP = 5
_SYMBOLS = 256


def main() -> int:
    """Measure the limit, the plain loop and the trainer."""
    given = parse(__doc__)
    device, size = torch.device(given.device), TOY if given.is_dry else LARGE
    ceiling = _matmul_flops(device)
    given.values.record("matmul_flops_per_s", ceiling)
    modes = ("off", "default")
    for mode in modes:
        plain_s = _plain_step_s(size, device, mode, given.is_dry)
        given.values.record(f"plain_step_s.compile_{mode}", plain_s)
        trainer_s = asyncio.run(_trainer_step_s(given, size, mode))
        given.values.record(f"trainer_step_s.compile_{mode}", trainer_s)
        given.values.record(f"ratio_plain_loop.compile_{mode}", plain_s / trainer_s)
        used = _flops_per_token(size) * size.micro_batch * size.sequence / trainer_s / ceiling
        given.values.record(f"mfu_over_matmul_ceiling.compile_{mode}", used)
    return 0


def _matmul_flops(device: torch.device) -> float:
    side, dtype = (256, torch.float32) if device.type == "cpu" else (8192, torch.bfloat16)
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    times: list[float] = []
    for _ in range(8):
        _wait(device)
        begun_s = time.perf_counter()
        for _ in range(20):
            torch.mm(left, right)
        _wait(device)
        times.append((time.perf_counter() - begun_s) / 20)
    return 2 * side**3 / median(times[2:])


def _flops_per_token(size: Size) -> float:
    model = build_model(_config(size), _SYMBOLS)
    parameters = sum(parameter.numel() for name, parameter in model.named_parameters() if "embed" not in name)
    return 6.0 * parameters + 12.0 * size.layers * size.dim * size.sequence


def _config(size: Size) -> dict[str, object]:
    return TransformerModel(**size.model).model_dump(mode="json")


def _plain_step_s(size: Size, device: torch.device, mode: str, is_dry: bool) -> float:
    """Return the median seconds of a step of a loop without a platform."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # as in a rank
    model = build_model(_config(size), _SYMBOLS).to_empty(device=device)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    if mode != "off":
        for block in cast(Model, model).layers.values():
            block.compile(dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randint(_SYMBOLS, (size.micro_batch, size.sequence), device=device)
    times: list[float] = []
    for _ in range(_WARM_UP + (3 if is_dry else 20)):
        _wait(device)
        begun_s = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(inputs)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), inputs.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        _wait(device)
        times.append(time.perf_counter() - begun_s)
    return median(times[_WARM_UP:])


async def _trainer_step_s(given: Given, size: Size, mode: str) -> float:
    """Return the median seconds of a step of a job, from the times of its step messages."""
    steps = _WARM_UP + (3 if given.is_dry else 20)
    job = spec(given, size, steps=steps, name=f"speed-{mode}", compile=mode) | {"determinism": "default"}
    async with started(job, given.folder / f"speed-{mode}") as running:
        await running.form()
        rows = await running.wait_for(StepRow, steps, within_s=300)
        await running.wait_for(Done)
    times = [later.time_s - earlier.time_s for earlier, later in pairwise(rows)]
    return median(times[_WARM_UP - 1 :])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
