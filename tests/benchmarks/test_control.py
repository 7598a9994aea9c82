"""The benchmark of control at scale, with tiny sizes: real processes, simulated agents and supervisors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.control import measure_job
from benchmarks.control_plane.controller_load import SMOKE, measure_controller


async def test_a_small_job_is_measured_through_a_death_and_a_restart() -> None:
    found = await measure_job(4, trials=1, steady_s=2.0, settle_s=0.5)
    assert (found["nodes"], found["ranks"]) == (4, 32)
    assert 0 < found["death_to_end_orders_s"] < found["death_to_form_orders_s"] < 30
    assert 0 <= found["steady_cores"] < 1
    assert found["memory_bytes"] > 2**20 and found["readopt_s"] > 0


async def test_a_controller_follows_simulated_supervisors(tmp_path: Path) -> None:
    found = await measure_controller(f"sqlite:///{tmp_path}/live.db", SMOKE)
    assert found["jobs"] == SMOKE.jobs and found["passes"] > 0
    assert found["steps_per_s"] > 0.5 * SMOKE.jobs and found["syncs_per_s"] > 1
    assert 0 < found["controller_cores"] < 2 and 0 < found["pass_p50_s"] <= found["pass_p95_s"]
    assert (found["leases_missed"], found["silent_jobs"]) == (0, 0) and found["least_left_of_lease_s"] > 0
    assert found["metrics_bytes"] > 10_000 and found["notes"] > 0 and found["note_stored_p95_s"] < 10


@pytest.mark.postgres
@pytest.mark.slow
def test_it_writes_the_figures_of_both_parts(tmp_path: Path) -> None:
    options = ["--smoke", "--trials", "1", "--json", str(tmp_path / "control.json")]
    command = [sys.executable, "-m", "benchmarks.control", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((tmp_path / "control.json").read_text())
    job, jobs = found["job_32_ranks"], found[f"jobs_{SMOKE.jobs}"]
    assert job["death_to_form_orders_s"] > 0 and found["growth_exponent"] is not None and len(found["sizes"]) == 2
    assert jobs["controller_cores"] > 0 and jobs["database_cores"] > 0 and jobs["leases_missed"] == 0
