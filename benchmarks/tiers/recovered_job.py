"""A job with a given size of state that loses a rank: seconds from the kill to the restored state, and first stalls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import run_server
from benchmarks.peers.workload import Workload
from benchmarks.trials.trial import TrialError

BYTES_PER_PARAMETER = 12
"""32-bit parameters and both moments of AdamW."""
KILL_STEP = 6
_STEPS = 8
_TOKENS_OF_A_GB = 1024
_PHASES = ("dead_s", "decided_s", "formed_s", "restored_s", "first_step_s")
_LAYERS = 6
_ROWS = 4
"""Samples of a step, one for each rank."""


@dataclass(frozen=True)
class RecoveredJob:
    """Figures of one job."""

    state_bytes: int
    kill_to: Mapping[str, float]
    """Phase of the recovery → seconds from the kill to its end."""
    stalls_s: tuple[float, ...]
    """Stall of training in each step before the kill."""
    steps_s: tuple[float, ...]
    """Duration of these steps."""
    machine_was_idle: bool

    @property
    def stall_fraction(self) -> float:
        """Share of these steps in which training waited for snapshots."""
        return sum(self.stalls_s) / sum(self.steps_s)


def run(state_gb: float, text: Path, folder: Path) -> RecoveredJob:
    """Run the job, kill rank 1, and wait for the end of the job. No process remains.

    Raises:
        TrialError: the job did not succeed, or the rank was not lost.
    """
    workload = workload_of(state_gb, text)
    fault = {"at": {"rank": 1, "step": KILL_STEP, "phase": "backward"}, "do": "sigkill"}
    with run_server(folder) as server:
        idle = settle()
        # A mirror would need as much memory again, and its transfer would share the processors with training.
        spec = workload.job_spec("state", faults=[fault], snapshot={"every_steps": 1, "mirror": "off"})
        job = server.client.submit(spec)
        return read_job(server.finish(job.id), server.steps(job.id), idle)


def read_job(job: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], idle: bool) -> RecoveredJob:
    """Compute the figures of a finished job into which one fault was injected.

    Raises:
        TrialError: the rank was not lost.
    """
    if len(job["incidents"]) != 1:
        raise TrialError(f"one fault was planned, but the job shows {len(job['incidents'])} incidents")
    incident = job["incidents"][0]
    killed_s = incident["times"]["fault_s"]
    before = [row for row in rows if row["generation"] == incident["generation"]]
    return RecoveredJob(
        job["parameter_count"] * BYTES_PER_PARAMETER,
        {phase.removesuffix("_s"): incident["times"][phase] - killed_s for phase in _PHASES},
        # The row of a step has the stall of the snapshot that was taken after the step before.
        tuple(row["stall_s"] for row in before),
        tuple(row["duration_s"] for row in before),
        idle,
    )


def workload_of(state_gb: float, text: Path) -> Workload:
    """Return a transformer with about this size of state, and so few tokens that a step takes seconds at any size."""
    parameters = state_gb * 1e9 / BYTES_PER_PARAMETER
    # A layer of the built-in transformer has about 12 dim² parameters.
    dim = round((parameters / (12 * _LAYERS)) ** 0.5 / 16) * 16
    sequence = max(8, min(256, round(_TOKENS_OF_A_GB / _ROWS / state_gb)))
    return Workload(
        text=str(text), steps=_STEPS, dim=max(dim, 64), layers=_LAYERS, heads=8, sequence=sequence, global_batch=_ROWS,
        micro_batch=1,
    )  # fmt: skip
