"""Smoke test: the device computes, a forked process gets a CUDA context, and a rank trains in bf16 from its fork on."""

import asyncio
import math
import multiprocessing
import sys
import time

import torch

from benchmarks.gpu.bare_job import started
from benchmarks.gpu.machine import memory_used_mib
from benchmarks.gpu.program import LARGE, SMALL, TOY, Given, parse, spec
from regroup.workers.contract.messages import Done, Joined, Restored, StepRow
from regroup.workers.zygote import device_check

_STEPS = 8


def main() -> int:
    """Run the checks in order."""
    given = parse(__doc__)
    given.values.record("torch", str(torch.__version__), cuda=torch.version.cuda)
    _check_device(given)
    asyncio.run(_train(given))
    return 0


def _check_device(given: Given) -> None:
    """Run the preflight's check in a forked process: this process must stay without a CUDA context."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply(device_check.check, ({"device": given.device, "indexes": [0]}, []))
        given.values.record("device_check_s", found["seconds"], failed=found["failed"])
        assert not found["failed"], found["failed"]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        begun_s = time.time()
        context_s, name, has_bf16 = pool.apply(_create_context, (given.device,))
    given.values.record("fork_to_context_s", context_s - begun_s, device=name, bf16=has_bf16)


def _create_context(device: str) -> tuple[float, str, bool]:
    """Return the Unix time at which a tensor on the device is usable, and the device's name."""
    torch.ones(1, device=device).add_(1).item()
    ready_s = time.time()
    if device == "cpu":
        return ready_s, "cpu", True
    return ready_s, torch.cuda.get_device_name(0), torch.cuda.is_bf16_supported()


async def _train(given: Given) -> None:
    for size in (TOY,) if given.is_dry else (TOY, SMALL, LARGE):
        before_mib = memory_used_mib()
        job = spec(given, size, steps=_STEPS, name=f"smoke-{size.name.lower()}")
        async with started(job, given.folder / size.name) as running:
            assert running.node is not None
            given.values.record(f"launcher.{size.name}", running.node.launcher, why=running.node.why)
            # A zygote with an initialized driver, or with threads, starts its ranks by exec: correctly, but slowly.
            assert running.node.launcher == "fork", running.node.why
            begun_s = await running.form()
            (joined,) = await running.wait_for(Joined)
            (restored,) = await running.wait_for(Restored)
            rows = await running.wait_for(StepRow, _STEPS)
            await running.wait_for(Done)
            await running.end_ranks()
            given.values.record(
                f"fork_to_first_step_s.{size.name}", rows[0].time_s - begun_s, joined_s=joined.time_s - begun_s,
                built_s=restored.time_s - begun_s,
            )  # fmt: skip
            losses = [row.loss for row in rows]
            given.values.record(f"losses.{size.name}", losses)
            assert all(loss is not None and math.isfinite(loss) for loss in losses), losses
            after_mib = memory_used_mib()
            given.values.record(f"memory_mib.{size.name}", after_mib, before=before_mib)


if __name__ == "__main__":
    sys.exit(main())
