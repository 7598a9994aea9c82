"""Rates and pauses of large training state, with the limits of the machine and torch DCP in the same run.

usage: python -m benchmarks.state --json PATH [--trials N] [--gb 1,4]
                                  [--parts limits,snapshot,peer,recovery,checkpoint,dcp,reshard,unchanged]

Jobs train a transformer with four FSDP ranks on two local nodes. Their state is 32-bit parameters and both moments of
AdamW. The first size counts for all figures, except that the slope of the recovery uses all sizes. The result is
written after each part. A part that cannot run is left out, with the reason under `failures`.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arms import dcp_arm
from benchmarks.peers.workload import write_text
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.tiers import limits, recovered_job, resharded_job, snapshot_rate, stored_job, unchanged_job
from benchmarks.transfers import peer_rate
from benchmarks.trials import stats
from benchmarks.trials.trial import TrialError


class Run:
    """Settings of a run."""

    def __init__(self, sizes_gb: Sequence[float], trials: int, root: Path) -> None:
        self.sizes_gb, self.trials, self.root = sizes_gb, trials, root
        self.text = root / "text"
        self._folders = 0
        write_text(self.text)

    @property
    def size_bytes(self) -> int:
        """Size of the state for all figures except the slope."""
        return int(self.sizes_gb[0] * 1e9)

    def folder(self) -> Path:
        """Return a new folder."""
        self._folders += 1
        folder = self.root / str(self._folders)
        folder.mkdir()
        return folder


def main() -> int:
    """Run the parts and write the result."""
    parser = arguments(__doc__ or "", trials=3)
    parser.add_argument("--gb", default="1,4", help="sizes of the state in GB, comma-separated")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to run, comma-separated")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    found: dict[str, Any] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-state-") as scratch:
        run = Run([float(size) for size in given.gb.split(",")], given.trials, Path(scratch))
        for name in given.parts.split(","):
            try:
                found[name] = PARTS[name](run)
                print(f"{name}: {found[name]}", flush=True)
            except TrialError as error:
                failures.append(f"{name}: {error}")
                print(f"FAILED {name}: {error}", flush=True)
            write_result(given.json, {**result(found), "sizes_gb": run.sizes_gb, "failures": failures})
    return 1 if failures else 0


def result(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parts, and the figures whose parts are present."""
    document: dict[str, Any] = {"parts": dict(found), "ratio": {}, "ratio_dcp": {}}
    ratio, ratio_dcp = document["ratio"], document["ratio_dcp"]
    limit, snapshot, peer, stored = (found.get(name) for name in ("limits", "snapshot", "peer", "checkpoint"))
    if limit and snapshot:
        ratio["snapshot_to_memcpy"] = snapshot["bytes_per_s"] / limit["memcpy_bytes_per_s"]
    if peer:
        ratio["fetch_to_socket"] = min(peer["fetch_to_socket"], peer["mirror_to_socket"])
    if stored:
        for name, seconds, bytes_per_s in (
            ("write_to_disk", "write_s", "dd_bytes_per_s"),
            ("read_to_disk", "read_s", "read_bytes_per_s"),
        ):
            ratio[name] = stats.median([job["checkpoint_bytes"] / job[seconds] / job[bytes_per_s] for job in stored])
    if stored and (dcp := found.get("dcp")):
        # The first save of DCP allocates its memory, and the first checkpoint of a job its buffers.
        blocked_s = [each for job in stored for each in job["blocked_s"]]
        ratio_dcp["blocked"] = stats.median(blocked_s) / stats.median(dcp["blocked_s"][1:])
        ratio_dcp["restored"] = stats.median([job["restored_s"] for job in stored]) / dcp["restored_s"]
    if jobs := found.get("recovery"):
        document["first_snapshots_stall_fraction"] = jobs[0]["stall_fraction"]
        sizes = sorted({job["state_bytes"] for job in jobs})
        if len(sizes) > 1:
            document["restore_slope_s_per_gb"] = slope(
                [(job["state_bytes"] / 1e9, job["kill_to"]["restored"]) for job in jobs]
            )
    if changes := found.get("reshard"):
        names = "bytes_over_minimum", "node_memory_over_own"
        document["reshard"] = {name: max(each[name] for each in changes) for name in names}
    if unchanged := found.get("unchanged"):
        document["unchanged"] = {"bytes_ratio": unchanged["bytes_ratio"]}
    return document


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line of least squares through points."""
    middle_x, middle_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    over = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return over / sum((x - middle_x) ** 2 for x, _ in points)


def _limits(run: Run) -> dict[str, Any]:
    return {"memcpy_bytes_per_s": limits.memcpy_rate(min(run.size_bytes, 256 << 20), run.trials)}


def _snapshot(run: Run) -> dict[str, Any]:
    return asdict(snapshot_rate.measure(min(run.size_bytes, 256 << 20), run.trials))


def _peer(run: Run) -> dict[str, Any]:
    rates = peer_rate.measure(run.size_bytes, max(2, run.trials))  # the first mirror does not count
    return {**asdict(rates), "fetch_to_socket": rates.fetch_to_socket, "mirror_to_socket": rates.mirror_to_socket}


def _recovery(run: Run) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = []
    for _ in range(run.trials):
        for size_gb in run.sizes_gb:
            job = recovered_job.run(size_gb, run.text, run.folder())
            jobs.append({**asdict(job), "stall_fraction": job.stall_fraction})
    return jobs


def _checkpoint(run: Run) -> list[dict[str, Any]]:
    """Run jobs, each with the limits of the disk at that time: the rate of the disk changes within minutes."""
    jobs: list[dict[str, Any]] = []
    for _ in range(run.trials):
        before = limits.dd_rate(run.folder(), run.size_bytes, 1)
        job = stored_job.run(run.sizes_gb[0], run.text, run.folder(), lambda files: limits.read_rate(files, 1))
        after = limits.dd_rate(run.folder(), run.size_bytes, 1)
        jobs.append({**asdict(job), "dd_bytes_per_s": stats.median([before, after])})
        print(f"checkpoint: {jobs[-1]}", flush=True)
    return jobs


def _dcp(run: Run) -> dict[str, Any]:
    return asdict(dcp_arm.run(recovered_job.workload_of(run.sizes_gb[0], run.text), run.folder()))


def _reshard(run: Run) -> list[dict[str, Any]]:
    found = resharded_job.run(run.sizes_gb[0], run.text, run.folder())
    return [
        {
            **asdict(each),
            "bytes_over_minimum": each.bytes_over_minimum,
            "node_memory_over_own": each.node_memory_over_own,
        }
        for each in found
    ]


def _unchanged(run: Run) -> dict[str, Any]:
    job = unchanged_job.run(run.sizes_gb[0], run.folder())
    return {**asdict(job), "bytes_ratio": job.bytes_ratio}


PARTS: Mapping[str, Callable[[Run], Any]] = {
    "limits": _limits,
    "snapshot": _snapshot,
    "peer": _peer,
    "recovery": _recovery,
    "checkpoint": _checkpoint,
    "dcp": _dcp,
    "reshard": _reshard,
    "unchanged": _unchanged,
}

if __name__ == "__main__":
    sys.exit(main())
