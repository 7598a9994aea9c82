"""A job with checkpoints that loses the memory of a node: blocked time, and rates of writing and restoring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import run_server
from benchmarks.tiers import limits
from benchmarks.tiers.recovered_job import workload_of
from benchmarks.trials.trial import TrialError

_EVERY_STEPS = 3
_LOSS_STEP = 11
_STEPS = 13


@dataclass(frozen=True)
class StoredJob:
    """Figures of one job."""

    checkpoint_bytes: int
    write_s: float
    """From the last snapshot to its complete checkpoint, after the last step: nothing trains at the same time."""
    blocked_s: tuple[float, ...]
    """Stall of training by each checkpoint after the first one."""
    restored_s: float
    """From formed ranks to the state in place, read from the checkpoint."""
    read_bytes_per_s: float
    """Limit: the files of the checkpoint, read from the disk by one thread."""
    machine_was_idle: bool


def run(state_gb: float, text: Path, folder: Path, read_rate: Callable[[Sequence[Path]], float]) -> StoredJob:
    """Run the job, kill the agent of rank 0, and wait for the end of the job. No process remains.

    Raises:
        TrialError: the job did not succeed, or did not restore from a checkpoint.
    """
    workload = replace(workload_of(state_gb, text), steps=_STEPS)
    fault = {"at": {"rank": 0, "step": _LOSS_STEP, "phase": "forward"}, "do": "kill_agent"}
    # The restore reads from the disk, as a node that wrote nothing of the checkpoint would.
    with limits.written_uncached(folder, "*.distcp"), run_server(folder) as server:
        idle = settle()
        spec = workload.job_spec(
            "stored", faults=[fault], snapshot={"every_steps": 1, "mirror": "off"},
            checkpoint={"every_steps": _EVERY_STEPS, "keep_last": 1},
        )  # fmt: skip
        job = server.client.submit(spec)
        done = server.finish(job.id)
        saved = [each.model_dump(mode="json") for each in server.client.checkpoints(job.id, removed=True)]
        kept = [Path(unquote(urlsplit(each["uri"]).path)) for each in saved if each["removed_at"] is None]
        files = [path for path in kept[-1].rglob("*") if path.is_file()]
        return read_job(done, saved, idle, read_rate(files))


def read_job(
    job: Mapping[str, Any], saved: Sequence[Mapping[str, Any]], idle: bool, read_bytes_per_s: float
) -> StoredJob:
    """Compute the figures of a finished job.

    Raises:
        TrialError: the job did not restore from a checkpoint, or has too few checkpoints.
    """
    incidents = [each for each in job["incidents"] if each["recovery_action"] == "disk"]
    if len(incidents) != 1:
        actions = [each["recovery_action"] for each in job["incidents"]]
        raise TrialError(f"one restore from a checkpoint was planned, but the job recovered by {actions}")
    times, last = incidents[0]["times"], max(saved, key=lambda each: each["step"])
    stalls = [each["stall_s"] for each in sorted(saved, key=lambda each: each["step"]) if each["stall_s"] is not None]
    if len(stalls) < 2:
        raise TrialError(f"{len(saved)} checkpoints have {len(stalls)} measured stalls; at least two are needed")
    return StoredJob(
        last["size_bytes"],
        last["duration_s"],
        tuple(stalls[1:]),
        times["restored_s"] - times["formed_s"],
        read_bytes_per_s,
        idle,
    )
