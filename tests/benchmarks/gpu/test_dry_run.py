"""Every stage on the CPU with gloo, at toy size: no stage can fail on a GPU for a reason that a CPU shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.stages import STAGES
from tests.support.packages.wheel import ROOT

VALUES = {
    "smoke": {"device_check_s", "fork_to_context_s", "fork_to_first_step_s.toy", "losses.toy"},
    "tests": {"passed"},
    "state": {"snapshot_d2h_ratio.16MiB", "restore_bytes_per_s.16MiB"},
    "recovery": {"kill_to_first_step_s.toy", "restored_to_first_step_s.toy", "bitwise_equal.toy"},
    "speed": {
        "matmul_flops_per_s", "ratio_plain_loop.compile_default", "mfu_over_matmul_ceiling.compile_off",
        "trainer_step_s.recomputed", "trainer_step_s.offloaded", "predicted_step_s.compile_off",
        "not_predicted.offloaded",
    },
    "service": {"incidents", "bitwise_equal", "hang"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.compiler
def test_every_stage_passes_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--dry-run", "--again", "--results", str(tmp_path / "gpu")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in STAGES:
        stored = json.loads((tmp_path / "gpu" / f"{stage.name}.json").read_text())
        names = {row["name"] for row in stored["rows"]}
        assert stored["state"] == "passed" and names >= VALUES[stage.name], (stage.name, names)
