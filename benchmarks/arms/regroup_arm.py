"""One trial of regroup on a fresh, idle server with two local nodes of two slots each."""

import time
from pathlib import Path
from typing import Any

from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import run_server
from benchmarks.peers.workload import Workload
from benchmarks.trials.trial import KillPoint, Trial, TrialError


def undisturbed(workload: Workload, folder: Path) -> dict[str, Any]:
    """Run the workload without a fault. Return the digest of its final parameters and its time to the first step."""
    job, rows, submitted, idle = _run(workload, folder, faults=[])
    return {
        "digest": job["digest"]["parameters"],
        "submit_to_first_step_s": rows[0]["time_s"] - submitted,
        "machine_was_idle": idle,
    }


def run(arm: str, standby: bool, workload: Workload, kill_point: KillPoint, folder: Path) -> Trial:
    """Submit a job, kill a rank, and wait for the end of the job. No process remains.

    Raises:
        TrialError: the job did not succeed, or the rank was not lost.
    """
    fault = {"at": {"rank": kill_point.rank, "step": kill_point.step, "phase": kill_point.phase}, "do": "sigkill"}
    job, rows, submitted, idle = _run(workload, folder, faults=[fault], standby=standby)
    return read_trial(arm, kill_point, job, rows, submitted, idle)


def read_trial(
    arm: str, kill_point: KillPoint, job: dict[str, Any], rows: list[dict[str, Any]], submitted: float, idle: bool
) -> Trial:
    """Compute the figures of a finished job into which one fault was injected.

    Raises:
        TrialError: the rank was not lost.
    """
    if len(job["incidents"]) != 1:
        raise TrialError(f"{arm}: one fault was planned, but the job shows {len(job['incidents'])} incidents")
    incident = job["incidents"][0]
    killed = incident["times"]["fault_s"]
    after = [row for row in rows if row["generation"] > incident["generation"]]
    return Trial(
        arm=arm,
        kill_point=kill_point,
        submit_to_first_step_s=rows[0]["time_s"] - submitted,
        kill_to_first_step_s=after[0]["time_s"] - killed,
        kill_to_new_step_s=next(row["time_s"] for row in after if row["step"] > incident["at_step"]) - killed,
        steps_lost=incident["at_step"] - (after[0]["step"] - 1),
        details={
            "digest": job["digest"]["parameters"],
            "durations": incident["durations"],
            "recovery_action": incident["recovery_action"],
            "machine_was_idle": idle,
        },
    )


def _run(
    workload: Workload, folder: Path, faults: list[dict[str, Any]], *, standby: bool = True
) -> tuple[dict[str, Any], list[dict[str, Any]], float, bool]:
    """Run a job to its end.

    Returns:
        The finished job, its committed steps in order, the time of its submission (Unix seconds), and whether the
        machine was idle at that time.
    """
    with run_server(folder, {"REGROUP_STANDBY": str(standby)}) as server:
        idle = settle()
        submitted = time.time()
        job = server.client.submit(workload.job_spec("recovery", faults=faults))
        done = server.finish(job.id)
        return done, server.steps(job.id), submitted, idle
