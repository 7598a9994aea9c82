"""Run one stage in a process of its own, within its time limit, and store what it recorded."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import gpu_facts
from benchmarks.gpu.stages import Stage
from benchmarks.gpu.values import Values
from benchmarks.report.output import write_result

_GRACE_S = 10.0
_LOG_BYTES = 6000
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """Result of a stage."""

    state: str
    """`passed`, `failed`, `timed_out` or `skipped`."""
    seconds: float
    reason: str = ""


def run_stage(stage: Stage, results: Path, device: str, limit_s: float | None = None) -> Outcome:
    """Run a stage and write `NAME.json` and `NAME.log` in the folder of results.

    Args:
        stage: the stage.
        results: folder of results.
        device: `cuda`, or `cpu` for a dry run at toy size.
        limit_s: time limit instead of the stage's own.
    """
    results.mkdir(parents=True, exist_ok=True)
    if missing := [name for name in stage.needs if importlib.util.find_spec(name) is None]:
        outcome = Outcome("skipped", 0.0, f"missing: {', '.join(missing)}")
        _store(stage, results, device, outcome, [])
        return outcome
    with tempfile.TemporaryDirectory(prefix=f"regroup-gpu-{stage.name}-") as scratch:
        values, log = Path(scratch, "values.jsonl"), results / f"{stage.name}.log"
        command = [
            sys.executable, *stage.program, "--values", str(values), "--folder", str(Path(scratch, "work")), "--device",
            device,
        ]  # fmt: skip
        begun_s = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            outcome = _wait(process, stage.limit_s if limit_s is None else limit_s)
        rows = Values.read(values)
        outcome = _check_values(stage, device, outcome, rows)
        outcome = Outcome(outcome.state, round(time.monotonic() - begun_s, 1), outcome.reason)
        _store(stage, results, device, outcome, rows)
    return outcome


def _check_values(stage: Stage, device: str, outcome: Outcome, rows: list[dict[str, Any]]) -> Outcome:
    """Return the outcome of a stage; of a dry run, a failure if the stage did not record all its values."""
    missing = set(stage.dry_values) - {row["name"] for row in rows}
    if device != "cpu" or outcome.state != "passed" or not missing:
        return outcome
    return Outcome("failed", 0.0, f"did not record {', '.join(sorted(missing))}")


def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> Outcome:
    try:
        code = process.wait(limit_s)
        return Outcome("passed", 0.0) if code == 0 else Outcome("failed", 0.0, f"exit code {code}")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        return Outcome("timed_out", 0.0, f"the limit is {limit_s:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError):  # nothing is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _store(stage: Stage, results: Path, device: str, outcome: Outcome, rows: list[dict[str, Any]]) -> None:
    log = results / f"{stage.name}.log"
    document = {
        "stage": stage.name, "title": stage.title, "device": device, "state": outcome.state, "reason": outcome.reason,
        "seconds": outcome.seconds, "rows": rows,
        "output_tail": log.read_bytes()[-_LOG_BYTES:].decode(errors="replace") if log.exists() else "",
        "gpu": gpu_facts(),
    }  # fmt: skip
    write_result(results / f"{stage.name}.json", document)
