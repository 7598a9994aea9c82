"""Tests of the figures of a job that lost a rank."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.tiers.recovered_job import BYTES_PER_PARAMETER, read_job, workload_of
from benchmarks.trials.trial import TrialError
from regroup.workers.models.transformer import build

TIMES = {"fault_s": 100.0, "dead_s": 100.1, "decided_s": 100.2, "formed_s": 100.3, "restored_s": 100.7,
         "first_step_s": 102.0}  # fmt: skip


def finished(incidents: int) -> dict[str, Any]:
    return {
        "parameter_count": 1000,
        "incidents": [{"generation": 1, "times": TIMES}] * incidents,
    }


def row(generation: int, stall_s: float) -> dict[str, Any]:
    return {"generation": generation, "stall_s": stall_s, "duration_s": 2.0}


def test_times_count_from_the_kill_and_stalls_until_then() -> None:
    found = read_job(finished(1), [row(1, 0.0), row(1, 0.1), row(1, 0.1), row(2, 9.0)], idle=True)
    assert found.kill_to == pytest.approx(
        {"dead": 0.1, "decided": 0.2, "formed": 0.3, "restored": 0.7, "first_step": 2.0}
    )
    assert found.state_bytes == 1000 * BYTES_PER_PARAMETER
    assert found.stall_fraction == pytest.approx(0.2 / 6)


def test_a_job_that_lost_no_rank_is_an_error() -> None:
    with pytest.raises(TrialError, match="shows 0 incidents"):
        read_job(finished(0), [], idle=True)


@pytest.mark.parametrize("state_gb", [0.02, 1.0, 4.0])
def test_the_model_has_about_the_size_of_state(state_gb: float) -> None:
    import torch

    with torch.device("meta"):
        model = build(workload_of(state_gb, Path("text")).model, 257)
    size_gb = sum(parameter.numel() for parameter in model.parameters()) * BYTES_PER_PARAMETER / 1e9
    assert size_gb == pytest.approx(state_gb, rel=0.2)
