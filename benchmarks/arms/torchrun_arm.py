"""One trial of torchrun: four ranks on one machine, which it starts again from the script's own checkpoint. No Ray."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.arms.driven import drive
from benchmarks.cluster.ray_nodes import settle
from benchmarks.peers.noted import note
from benchmarks.peers.torchrun_loop import TorchrunSettings
from benchmarks.peers.workload import RANKS, Workload
from benchmarks.trials.trial import Strike, Trial

CHECKPOINT_EVERY = 10
"""As in the arm of Ray Train as shipped."""
KNOBS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""As shipped (2.13), ranks that are started again share the store of those before them, whose keys are still there, and
with gloo they wait for each other for ever, or end: it came back in neither of two tries."""


def run(arm: str, workload: Workload, strike: Strike, folder: Path) -> Trial:
    """Start it, lose a rank, wait for a step beyond the one that was lost; nothing is left running.

    Raises:
        TrialError: it ended or took too long.
    """
    events, storage = folder / "events.jsonl", folder / "storage"
    storage.mkdir()
    settings = TorchrunSettings(
        events=str(events),
        storage=str(storage),
        workload=replace(workload, steps=strike.step + 2).to_json(),
        checkpoint_every=CHECKPOINT_EVERY,
        kill_rank=strike.rank,
        kill_step=strike.step,
        kill_phase=strike.phase,
    )
    (folder / "settings.json").write_text(json.dumps(asdict(settings)))
    env = {**os.environ, **KNOBS, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command += ["--max-restarts", "3", "-m", "benchmarks.peers.torchrun_loop", str(folder / "settings.json")]
    idle = settle()
    for kind in ("launched", "submit"):  # there is no cluster to connect to: starting it is submitting
        note(str(events), kind)
    trial = drive(arm, command, env, events, strike)
    return replace(trial, details={**trial.details, "machine_was_idle": idle})
