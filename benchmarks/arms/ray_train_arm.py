"""One trial of Ray Train on a fresh, idle Ray cluster of two nodes with two slots each."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.arms.driven import drive
from benchmarks.cluster.ray_nodes import ray_nodes, settle
from benchmarks.peers.ray_train_loop import RayTrainSettings
from benchmarks.peers.workload import NODES, RANKS, SLOTS, Workload
from benchmarks.trials.trial import KillPoint, Trial


@dataclass(frozen=True)
class Knobs:
    """Settings that a user may change."""

    environment: Mapping[str, str]
    """Environment variables of the driver and of every process of the cluster."""
    checkpoint_every: int
    """Steps between checkpoints."""
    direct: bool
    """Write checkpoints directly to the storage path. Otherwise Ray Train copies them there."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings by name."""
        return asdict(self)


SHIPPED = Knobs(environment={}, checkpoint_every=10, direct=False)
TUNED = Knobs(
    environment={"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1", "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "1"},
    checkpoint_every=1,
    direct=True,
)


def run(arm: str, knobs: Knobs, workload: Workload, kill_point: KillPoint, folder: Path) -> Trial:
    """Submit a job, kill a rank, and wait for two steps beyond the lost step. No process remains.

    Raises:
        TrialError: the driver ended early or timed out.
    """
    events = folder / "events.jsonl"
    with ray_nodes(NODES, SLOTS, knobs.environment) as cluster:
        idle = settle()
        settings = RayTrainSettings(
            address=cluster.address,
            events=str(events),
            storage=str(folder / "storage"),
            workload=replace(workload, steps=kill_point.step + 2).to_json(),
            ranks=RANKS,
            checkpoint_every=knobs.checkpoint_every,
            direct=knobs.direct,
            kill_rank=kill_point.rank,
            kill_step=kill_point.step,
            kill_phase=kill_point.phase,
        )
        (folder / "settings.json").write_text(json.dumps(asdict(settings)))
        env = {**os.environ, **cluster.environment, "OMP_NUM_THREADS": "1"}
        env["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-m", "benchmarks.peers.ray_train_loop", str(folder / "settings.json")]
        trial = drive(arm, command, env, events, kill_point)
    return replace(trial, details={**trial.details, "machine_was_idle": idle})
