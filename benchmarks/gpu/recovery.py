"""From the kill of a rank to the first step of its successor, by phase, and bitwise against an undisturbed run."""

import asyncio
import sys
import time
from statistics import median
from typing import Any

from benchmarks.gpu.bare_job import BareJob, JobFailedError, started
from benchmarks.gpu.machine import memory_used_mib
from benchmarks.gpu.program import LARGE, SMALL, TOY, Given, Size, parse, spec
from regroup.workers.contract.messages import Done, Exited, Joined, Restored, StepRow

_KILLS = 3
_STEPS_BETWEEN = 4
_BASELINE_TOLERANCE_MIB = 64.0
_RELEASE_S = 20.0


def main() -> int:
    """Measure each size."""
    given = parse(__doc__)
    for size in (TOY,) if given.is_dry else (TOY, SMALL, LARGE):
        asyncio.run(_measure(given, size))
    return 0


async def _measure(given: Given, size: Size) -> None:
    steps = _STEPS_BETWEEN * (_KILLS + 1)
    expected = await _undisturbed(given, size, steps)
    idle_mib = memory_used_mib()
    job = spec(given, size, steps=steps, name=f"killed-{size.name.lower()}")
    rows: list[dict[str, float]] = []
    async with started(job, given.folder / f"killed-{size.name}") as running:
        await running.form()
        for _ in range(_KILLS):
            await running.wait_for(StepRow, _STEPS_BETWEEN)
            rows.append(await _kill_and_restart(given, running, idle_mib))
        (done,) = await running.wait_for(Done)
        result = done.result
    for phase in rows[0]:
        given.values.record(
            f"{phase}.{size.name}", median(row[phase] for row in rows), all=[row[phase] for row in rows]
        )
    for part in ("parameters", "samples"):
        assert result[part] == expected[part], f"{part} differ from those of the undisturbed run"
    given.values.record(f"bitwise_equal.{size.name}", True)


async def _undisturbed(given: Given, size: Size, steps: int) -> dict[str, Any]:
    job = spec(given, size, steps=steps, name=f"whole-{size.name.lower()}")
    async with started(job, given.folder / f"whole-{size.name}") as running:
        await running.form()
        (done,) = await running.wait_for(Done)
        return done.result


async def _kill_and_restart(given: Given, running: BareJob, idle_mib: float | None) -> dict[str, float]:
    """Kill the rank and start the next generation from memory; return the seconds of each phase."""
    killed_s = running.kill(0)
    (exited,) = await running.wait_for(Exited)
    await running.end_ranks()
    ended_s = time.time()
    released_s = _wait_for_memory(idle_mib)
    restore = running.newest_snapshot()
    chosen_s = time.time()
    formed_s = await running.form(restore)
    (joined,), (restored,) = await running.wait_for(Joined), await running.wait_for(Restored)
    if restored.step != restore.step:
        raise JobFailedError(f"restored step {restored.step}, not {restore.step}")
    (first,) = await running.wait_for(StepRow)
    return {
        "kill_to_exit_s": exited.time_s - killed_s,
        "exit_to_proof_s": ended_s - exited.time_s,
        "memory_release_s": released_s,
        "verify_snapshot_s": chosen_s - ended_s - released_s,
        "form_to_joined_s": joined.time_s - formed_s,
        "joined_to_restored_s": restored.time_s - joined.time_s,
        "restored_to_first_step_s": first.time_s - restored.time_s,
        "kill_to_first_step_s": first.time_s - killed_s,
    }


def _wait_for_memory(idle_mib: float | None) -> float:
    """Wait until the driver counts no more used memory than before; return the seconds."""
    begun_s = time.monotonic()
    while idle_mib is not None and (used := memory_used_mib()) is not None:
        if used <= idle_mib + _BASELINE_TOLERANCE_MIB:
            break
        if time.monotonic() - begun_s > _RELEASE_S:
            raise JobFailedError(f"{used:g} MiB of the GPU are used after the end of all ranks; {idle_mib:g} before")
        time.sleep(0.02)
    return time.monotonic() - begun_s


if __name__ == "__main__":
    sys.exit(main())
