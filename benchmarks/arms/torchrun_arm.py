"""One trial of torchrun: four ranks on one machine, without Ray. It restarts them from the script's checkpoint."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.arms.driven import drive
from benchmarks.cluster.ray_nodes import settle
from benchmarks.peers.event_file import note
from benchmarks.peers.torchrun_loop import TorchrunSettings
from benchmarks.peers.workload import RANKS, Workload
from benchmarks.trials.trial import KillPoint, Trial

CHECKPOINT_EVERY = 10
"""Same value as in the Ray Train arm with default settings."""
KNOBS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""By default (torch 2.13), restarted ranks share the store of the previous ranks, which still contains the old keys.
With gloo, the restarted ranks then wait for each other without end, or exit. Neither of two attempts recovered."""


def run(arm: str, workload: Workload, kill_point: KillPoint, folder: Path) -> Trial:
    """Start torchrun, kill a rank, and wait for a step beyond the lost step. No process remains.

    Raises:
        TrialError: torchrun ended early or timed out.
    """
    events, storage = folder / "events.jsonl", folder / "storage"
    storage.mkdir()
    settings = TorchrunSettings(
        events=str(events),
        storage=str(storage),
        workload=replace(workload, steps=kill_point.step + 2).to_json(),
        checkpoint_every=CHECKPOINT_EVERY,
        kill_rank=kill_point.rank,
        kill_step=kill_point.step,
        kill_phase=kill_point.phase,
    )
    (folder / "settings.json").write_text(json.dumps(asdict(settings)))
    env = {**os.environ, **KNOBS, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command += ["--max-restarts", "3", "-m", "benchmarks.peers.torchrun_loop", str(folder / "settings.json")]
    idle = settle()
    for kind in ("launched", "submit"):  # no cluster to connect to: the start is the submission
        note(str(events), kind)
    trial = drive(arm, command, env, events, kill_point)
    return replace(trial, details={**trial.details, "machine_was_idle": idle})
