"""Throughput of the built-in trainer in bf16, compared with a plain compiled loop, with bare matrix products and with
the planner's predictions.

The plain loop uses the same model code, batch and optimizer, and no platform: no snapshots, messages or checks. A
utilization is (6 × parameters + 12 × layers × dim × sequence) FLOPs per token (Chowdhery et al. 2022, appendix B),
divided by the rate of large matrix products on this device.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any, cast

import torch
from torch.nn.functional import ScalingType, scaled_mm

from benchmarks.gpu.bare_job import JobFailedError, started
from benchmarks.gpu.program import LARGE, TOY, Given, Size, parse, spec
from regroup.service.domain.errors import SpecError
from regroup.service.domain.hardware import find_device
from regroup.service.domain.layout import Layout
from regroup.service.planner.predictions import predict_step
from regroup.service.planner.types import Cluster
from regroup.service.spec.job import JobSpec
from regroup.service.spec.models import TransformerModel
from regroup.workers.contract.messages import Done, StepRow
from regroup.workers.models import Model, build_model

_WARM_UP = 5
_SETTLED = 15
"""Steps of a job on a GPU until its snapshot interval is chosen. At first every step has a snapshot."""
_SYMBOLS = 258
_COMPARED = {"compile_off": "off", "compile_default": "default"}
"""Variants for which a plain loop is measured, too → mode of `torch.compile`."""
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "compile_off": {},
    "compile_default": {"compile": "default"},
    "cuda_graphs": {"compile": "reduce-overhead"},
    "recomputed": {"compile": "default", "activation_checkpointing": "full"},
    "offloaded": {"offload": True},
}
"""Name → settings of `training`, and of `layout` for `offload`. A variant that fails is recorded with its error."""


def main() -> int:
    """Measure the limit, the plain loop and the trainer."""
    given = parse(__doc__)
    device, size = torch.device(given.device), TOY if given.is_dry else LARGE
    ceiling = _matmul_flops(device)
    given.values.record("matmul_flops_per_s", ceiling)
    for name, settings in _VARIANTS.items():
        plain_s = None
        if name in _COMPARED:
            plain_s = _plain_step_s(size, device, _COMPARED[name], given.is_dry)
            given.values.record(f"plain_step_s.{name}", plain_s)
        job = _job(given, size, name, settings)
        _predict(given, job, name)
        try:
            trainer_s, peak_bytes = asyncio.run(_trainer_step(given, job, name))
        except JobFailedError as error:
            if name in _COMPARED:
                raise
            given.values.record(f"failed.{name}", str(error)[:2000])
            continue
        given.values.record(f"trainer_step_s.{name}", trainer_s, peak_bytes=peak_bytes)
        used = _flops_per_token(size) * size.micro_batch * size.sequence / trainer_s / ceiling
        given.values.record(f"mfu_over_matmul_ceiling.{name}", used)
        if plain_s is not None:
            given.values.record(f"ratio_plain_loop.{name}", plain_s / trainer_s)
    _measure_float8(given, device, ceiling)
    return 0


def _matmul_flops(device: torch.device) -> float:
    side, dtype = _side(device), torch.float32 if device.type == "cpu" else torch.bfloat16
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / _product_s(device, lambda: torch.mm(left, right))


def _measure_float8(given: Given, device: torch.device, ceiling: float) -> None:
    """Record the rate of products in float8 relative to bf16, or the reason why this device has none."""
    side = _side(device)
    left, right = (torch.randn(side, side, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)
    by_tensor = ScalingType.TensorWise

    def multiply() -> object:
        return scaled_mm(left, right.t(), scale, by_tensor, scale, by_tensor, output_dtype=torch.bfloat16)

    try:
        given.values.record("float8_over_bf16", 2 * side**3 / _product_s(device, multiply) / ceiling)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        given.values.record("failed.float8", str(error)[:2000])


def _side(device: torch.device) -> int:
    return 256 if device.type == "cpu" else 8192


def _product_s(device: torch.device, multiply: Callable[[], object]) -> float:
    """Return the median seconds of a product of matrices."""
    times: list[float] = []
    for _ in range(8):
        _wait(device)
        begun_s = time.perf_counter()
        for _ in range(20):
            multiply()
        _wait(device)
        times.append((time.perf_counter() - begun_s) / 20)
    return median(times[2:])


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


def _job(given: Given, size: Size, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    training = {key: value for key, value in settings.items() if key != "offload"}
    steps = _warm_up(given) + (3 if given.is_dry else 20)
    job = spec(given, size, steps=steps, name=f"speed-{name}".replace("_", "-"), **training)
    job["determinism"], job["snapshot"] = "default", {"mirror": "off"}
    job["workload"]["model"] = {**job["workload"]["model"], "vocab_size": _SYMBOLS}
    if settings.get("offload"):
        job["layout"] = {**job["layout"], "data_parallel": "fsdp", "offload": True}
    return job


def _warm_up(given: Given) -> int:
    return _WARM_UP if given.is_dry else _SETTLED


def _predict(given: Given, job: Mapping[str, Any], name: str) -> None:
    """Record what the planner predicts for the device's row of its table, before the measurement."""
    device = find_device("cpu" if given.is_dry else torch.cuda.get_device_name(0))
    if device is None:
        given.values.record(f"not_predicted.{name}", "the planner's table has no row for this device")
        return
    cluster = Cluster(device, 1, 1, device.network_bytes_s)
    try:
        predicted = predict_step(JobSpec.model_validate(job), Layout(dp_shard=1), cluster)
    except SpecError as error:
        given.values.record(f"not_predicted.{name}", str(error))
        return
    given.values.record(f"predicted_step_s.{name}", predicted.step_s, peak_bytes=predicted.peak_bytes)


async def _trainer_step(given: Given, job: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Return the median seconds of a step of a job, from the times of its step messages, and its peak memory."""
    steps = int(job["training"]["steps"])
    async with started(job, given.folder / f"speed-{name}") as running:
        await running.form()
        rows = await running.wait_for(StepRow, steps, within_s=300)
        await running.wait_for(Done)
    times = [later.time_s - earlier.time_s for earlier, later in pairwise(rows)]
    return median(times[_warm_up(given) - 1 :]), max(row.extra.get("peak_bytes", 0.0) for row in rows)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
