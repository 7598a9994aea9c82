"""A job with checkpoints that loses the memory of a node: blocked time, and rates of writing and restoring."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.tiers import limits
from benchmarks.tiers.recovered_job import workload_of
from benchmarks.trials.trial import TrialError

_EVERY_STEPS = 3
_LOSS_STEP = 11
_STEPS = 1000
"""More than the job ever trains: it is suspended before."""
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class StoredJob:
    """Figures of one job."""

    checkpoint_bytes: int
    write_s: float
    """From the last snapshot to its complete checkpoint, when the job is suspended: nothing trains at the same time."""
    blocked_s: tuple[float, ...]
    """Stall of training by each checkpoint after the first one."""
    restored_s: float
    """From formed ranks to the state in place, read from the checkpoint: the ranks also build their models then."""
    read_s: float
    """From the first request of the last rank, which has its model, to the state in place."""
    read_bytes_per_s: float
    """Limit: the files of the checkpoint, read from the disk by one thread."""
    machine_was_idle: bool


def run(state_gb: float, text: Path, folder: Path, read_rate: Callable[[Sequence[Path]], float]) -> StoredJob:
    """Run the job, kill the agent of rank 0, and suspend the job when it has recovered. No process remains.

    Raises:
        TrialError: the job did not recover, or not from a checkpoint, or was not suspended in time.
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
        _wait_for(
            server, job.id, lambda found: bool(found["incidents"] and found["incidents"][-1]["durations"].get("total"))
        )
        server.client.suspend(job.id)
        done = _wait_for(server, job.id, lambda found: found["state"] == "SUSPENDED")
        saved = [each.model_dump(mode="json") for each in server.client.checkpoints(job.id, removed=True)]
        kept = [Path(unquote(urlsplit(each["uri"]).path)) for each in saved if each["removed_at"] is None]
        files = [path for path in kept[-1].rglob("*") if path.is_file()]
        events = [each.model_dump(mode="json") for each in server.client.events(job.id)]
        return read_job(done, saved, events, idle, read_rate(files))


def _wait_for(server: Server, job_id: str, condition: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """Return the job once a condition holds for it."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        found = server.client.get(job_id).model_dump(mode="json")
        if condition(found):
            return found
        if found["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") or time.monotonic() > deadline_s:
            raise TrialError(f"regroup: the job is {found['state']} with reason {found['reason']}: {found['message']}")
        time.sleep(0.5)


def read_job(
    job: Mapping[str, Any],
    saved: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    idle: bool,
    read_bytes_per_s: float,
) -> StoredJob:
    """Compute the figures of a suspended job.

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
    requests_s = [
        each["time_s"] - each["data"]["waited_s"]
        for each in events
        if each["data"].get("kind") == "state_restored" and each["data"]["source"] == "checkpoint"
    ]
    if not requests_s:
        raise TrialError("the job restored from a checkpoint, but no node reports it")
    return StoredJob(
        last["size_bytes"],
        last["duration_s"],
        tuple(stalls[1:]),
        times["restored_s"] - times["formed_s"],
        times["restored_s"] - max(requests_s),
        read_bytes_per_s,
        idle,
    )
