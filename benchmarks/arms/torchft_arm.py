"""One trial of torchft: four replicas of one rank each, without Ray. A replica that dies is restarted at once."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.ray_nodes import settle
from benchmarks.peers.torchft_loop import TorchftSettings
from benchmarks.peers.workload import RANKS, Workload
from benchmarks.trials.trial import KillPoint, Trial, TrialError

_PATIENCE_S = 240.0
_POLL_S = 0.01
"""Upper bound of the time until a dead replica is restarted. No supervisor of torchft is as fast."""
_QUORUM = {"min_replicas": 1, "join_timeout_ms": 10_000, "quorum_tick_ms": 100}
"""Settings from torchft's own instructions."""


def is_installed() -> bool:
    """Return whether torchft is installed. It is not a dependency (`pip install torchft==0.2.0`)."""
    return importlib.util.find_spec("torchft") is not None


def run(arm: str, workload: Workload, kill_point: KillPoint, folder: Path) -> Trial:
    """Start all replicas, kill one, and wait for two steps with all replicas. No process remains.

    Raises:
        TrialError: the trial timed out.
    """
    from torchft.coordination import LighthouseServer

    events = folder / "events.jsonl"
    idle = settle()
    lighthouse = LighthouseServer(bind="127.0.0.1:0", **_QUORUM)
    settings = TorchftSettings(
        lighthouse=_on_loopback(lighthouse.address()),
        events=str(events),
        workload=replace(workload, steps=10 * workload.steps).to_json(),
        replicas=RANKS,
        kill_rank=kill_point.rank,
        kill_step=kill_point.step,
        kill_phase=kill_point.phase,
    )
    (folder / "settings.json").write_text(json.dumps(asdict(settings)))
    submitted = time.time()
    with (folder / "replicas.log").open("w") as log:
        replicas = [_start(folder, number, log) for number in range(RANKS)]
        try:
            noted = _wait(events, replicas, lambda number: _start(folder, number, log))
        except TrialError as error:
            tail = (folder / "replicas.log").read_text()[-2000:]
            raise TrialError(f"{arm}: {error}; log of the replicas: {tail}") from None
        finally:
            processes.end(processes.descendants([replica.pid for replica in replicas]), grace_s=0.0)
            for replica in replicas:
                replica.wait()
            lighthouse.shutdown()
    trial = read_trial(arm, kill_point, noted, submitted)
    return replace(trial, details={**trial.details, "machine_was_idle": idle})


def read_trial(arm: str, kill_point: KillPoint, noted: Sequence[Mapping[str, Any]], submitted: float) -> Trial:
    """Compute the figures of a trial from the events that the replicas recorded.

    The trial is at full strength again with the first step in which all replicas take part.
    """
    steps = [item for item in noted if item["kind"] == "step"]
    killed = next(item["time_s"] for item in noted if item["kind"] == "kill")
    committed = max(item["step"] for item in steps if item["time_s"] <= killed)
    after = [item for item in steps if item["time_s"] > killed and item["step"] > committed]
    back = next(item for item in noted if item["kind"] == "start" and item["time_s"] > killed)
    whole = next(item for item in after if item["of"] == RANKS and item["time_s"] > back["time_s"])
    return Trial(
        arm=arm,
        kill_point=kill_point,
        submit_to_first_step_s=next(item["time_s"] for item in steps if item["of"] == RANKS) - submitted,
        kill_to_first_step_s=after[0]["time_s"] - killed,
        kill_to_new_step_s=after[0]["time_s"] - killed,
        steps_lost=0,
        kill_to_full_strength_s=whole["time_s"] - killed,
        details={"steps_with_fewer": whole["step"] - after[0]["step"], "restart_s": back["time_s"] - killed},
    )


def _start(folder: Path, number: int, log: Any) -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    command = [sys.executable, "-m", "benchmarks.peers.torchft_loop", str(folder / "settings.json"), str(number)]
    return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)


def _wait(events: Path, replicas: list["subprocess.Popen[bytes]"], again: Any) -> list[dict[str, Any]]:
    """Restart dead replicas. Return the events after the restart and two steps of all replicas."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for number, replica in enumerate(replicas):
            if replica.poll() is not None:
                replicas[number] = again(number)
        noted = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        killed = next((item["time_s"] for item in noted if item["kind"] == "kill"), None)
        back = [item["time_s"] for item in noted if item["kind"] == "start" and killed and item["time_s"] > killed]
        if back and sum(item.get("of") == RANKS and item["time_s"] > back[0] for item in noted) > 2 * RANKS:
            return sorted(noted, key=lambda item: item["time_s"])
        time.sleep(_POLL_S)
    raise TrialError(f"the replicas did not reach full strength within {_PATIENCE_S:.0f} s")


def _on_loopback(address: str) -> str:
    """Return the address with the loopback IP: the name of this host may not resolve."""
    return f"http://127.0.0.1:{address.rpartition(':')[2]}"
