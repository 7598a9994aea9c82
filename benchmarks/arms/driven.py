"""Run one trial of a driver that records event times in a file, and compute the figures of the trial."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.trials.trial import KillPoint, Trial, TrialError

_PATIENCE_S = 240.0


def drive(arm: str, command: Sequence[str], env: Mapping[str, str], events: Path, kill_point: KillPoint) -> Trial:
    """Run a driver until it finishes a step beyond the lost step. No process of the driver remains.


    Raises:
        TrialError: the driver ended early or timed out.
    """
    log_path = events.with_name("driver.log")
    with log_path.open("w") as log:
        driver = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            noted = _wait(events, driver, kill_point.step)
        except TrialError as error:
            raise TrialError(f"{arm}: {error}; log of the driver: {log_path.read_text()[-2000:]}") from None
        finally:
            processes.end(processes.descendants([driver.pid]), grace_s=1.0)
            driver.wait()
    return read_trial(arm, kill_point, noted)


def read_trial(arm: str, kill_point: KillPoint, noted: Sequence[Mapping[str, Any]]) -> Trial:
    """Compute the figures of a trial from the events that the script recorded, in order of time."""
    kinds = [item["kind"] for item in noted]
    launched, submitted, killed = (noted[kinds.index(kind)]["time_s"] for kind in ("launched", "submit", "kill"))
    restart = len(kinds) - 1 - kinds[::-1].index("start")
    resumed_after = noted[restart]["step"]
    steps = [item for item in noted if item["kind"] == "step"]
    # Not "before the kill": rank 0 may record a step that all ranks finished just after another rank was killed.
    committed = max(item["step"] for item in noted[:restart] if item["kind"] == "step")
    after = [item for item in noted[restart:] if item["kind"] == "step"]
    return Trial(
        arm=arm,
        kill_point=kill_point,
        submit_to_first_step_s=steps[0]["time_s"] - submitted,
        kill_to_first_step_s=after[0]["time_s"] - killed,
        kill_to_new_step_s=next(item["time_s"] for item in after if item["step"] > committed) - killed,
        steps_lost=committed - resumed_after,
        details={"launch_to_submit_s": submitted - launched, "resumed_after_step": resumed_after},
    )


def _wait(events: Path, driver: "subprocess.Popen[bytes]", kill_step: int) -> list[dict[str, Any]]:
    """Wait for a step beyond `kill_step`, then return the recorded events."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        noted = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        if any(item["kind"] == "step" and item["step"] > kill_step for item in noted):
            return noted
        if driver.poll() is not None:
            raise TrialError(f"the driver ended with {driver.returncode} before it passed step {kill_step}")
        time.sleep(0.1)
    raise TrialError(f"no step beyond {kill_step} within {_PATIENCE_S:.0f} s")
