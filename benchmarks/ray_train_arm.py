"""One trial of Ray Train on a fresh, idle Ray cluster of two nodes with two slots each."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.peers.ray_train_loop import RayTrainSettings
from benchmarks.peers.workload import NODES, RANKS, SLOTS, Workload
from benchmarks.ray_nodes import ray_nodes, settle
from benchmarks.trial import Strike, Trial, TrialError

_PATIENCE_S = 240.0


@dataclass(frozen=True)
class Knobs:
    """What a user may turn."""

    environment: Mapping[str, str]
    """For every process of the cluster and the driver."""
    checkpoint_every: int
    """Steps between checkpoints."""
    direct: bool
    """Checkpoints go straight to the storage path instead of through a copy by Ray Train."""

    def to_json(self) -> dict[str, Any]:
        """Settings by name."""
        return asdict(self)


SHIPPED = Knobs(environment={}, checkpoint_every=10, direct=False)
TUNED = Knobs(
    environment={"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1", "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "1"},
    checkpoint_every=1,
    direct=True,
)


def run(arm: str, knobs: Knobs, workload: Workload, strike: Strike, folder: Path) -> Trial:
    """Submit, lose a rank, wait for two steps beyond the one that was lost; nothing is left running.

    Raises:
        TrialError: the driver ended or took too long.
    """
    events = folder / "events.jsonl"
    with ray_nodes(NODES, SLOTS, knobs.environment) as cluster:
        idle = settle()
        settings = RayTrainSettings(
            address=cluster.address,
            events=str(events),
            storage=str(folder / "storage"),
            workload=replace(workload, steps=strike.step + 2).to_json(),
            ranks=RANKS,
            checkpoint_every=knobs.checkpoint_every,
            direct=knobs.direct,
            kill_rank=strike.rank,
            kill_step=strike.step,
            kill_phase=strike.phase,
        )
        (folder / "settings.json").write_text(json.dumps(asdict(settings)))
        env = {**os.environ, **cluster.environment, "OMP_NUM_THREADS": "1"}
        env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        with (folder / "driver.log").open("w") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.ray_train_loop", str(folder / "settings.json")],
                env=env, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                noted = _wait(events, driver, strike.step)
            except TrialError as error:
                tail = (folder / "driver.log").read_text()[-2000:]
                raise TrialError(f"{arm}: {error}; the driver said: {tail}") from None
            finally:
                processes.end(processes.descendants([driver.pid]), grace_s=1.0)
                driver.wait()
    trial = read_trial(arm, strike, noted)
    return replace(trial, details={**trial.details, "machine_was_idle": idle})


def read_trial(arm: str, strike: Strike, noted: Sequence[Mapping[str, Any]]) -> Trial:
    """The figures of a trial from the times that the script noted, in order of time."""
    kinds = [item["kind"] for item in noted]
    launched, submitted, killed = (noted[kinds.index(kind)]["time_s"] for kind in ("launched", "submit", "kill"))
    restart = len(kinds) - 1 - kinds[::-1].index("start")
    resumed_after = noted[restart]["step"]
    steps = [item for item in noted if item["kind"] == "step"]
    # Not "before the kill": rank 0 may note a step that all ranks have finished just after another rank is gone.
    committed = max(item["step"] for item in noted[:restart] if item["kind"] == "step")
    after = [item for item in noted[restart:] if item["kind"] == "step"]
    return Trial(
        arm=arm,
        strike=strike,
        submit_to_first_step_s=steps[0]["time_s"] - submitted,
        kill_to_first_step_s=after[0]["time_s"] - killed,
        kill_to_new_step_s=next(item["time_s"] for item in after if item["step"] > committed) - killed,
        steps_lost=committed - resumed_after,
        details={"launch_to_submit_s": submitted - launched, "resumed_after_step": resumed_after},
    )


def _wait(events: Path, driver: "subprocess.Popen[bytes]", kill_step: int) -> list[dict[str, Any]]:
    """What was noted once a step beyond `kill_step` is done."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        noted = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        if any(item["kind"] == "step" and item["step"] > kill_step for item in noted):
            return noted
        if driver.poll() is not None:
            raise TrialError(f"the driver ended with {driver.returncode} before it passed step {kill_step}")
        time.sleep(0.1)
    raise TrialError(f"no step beyond {kill_step} within {_PATIENCE_S:.0f} s")
