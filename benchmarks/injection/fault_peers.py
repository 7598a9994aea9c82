"""Time until a job has all its ranks again after a kill: regroup compared with torchft, with the same kill points."""

import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arms import regroup_arm, torchft_arm
from benchmarks.peers.workload import Workload
from benchmarks.report.facts import machine_facts
from benchmarks.trials import stats
from benchmarks.trials.trial import Trial, TrialError, draw_kill_point

TRIALS = 5
_STEPS, _FIRST_KILL_STEP, _LAST_KILL_STEP = 24, 12, 20


def run(root: Path, seed: int, failures: list[str]) -> dict[str, Any]:
    """Run the trials, alternating between the arms, and return their figures. `root` contains the text."""
    draw, trials = random.Random(seed), list[Trial]()
    workload = Workload(text=str(root / "text"), steps=_STEPS)
    for number in range(TRIALS):
        kill_point = draw_kill_point(draw, _FIRST_KILL_STEP, _LAST_KILL_STEP)
        for name in ("regroup", "torchft")[:: 1 if number % 2 == 0 else -1]:
            (folder := root / f"peers-{number}-{name}").mkdir()
            try:
                if name == "regroup":
                    trials.append(regroup_arm.run(name, True, workload, kill_point, folder))
                else:
                    trials.append(torchft_arm.run(name, workload, kill_point, folder))
                print(f"{name}: all ranks again after {full_strength_s(trials[-1]):.2f} s", flush=True)
            except TrialError as error:
                failures.append(str(error))
                print(f"FAILED {error}", flush=True)
    return {**result(trials), "measured_on": machine_facts()}


def result(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return a summary for each arm, and the ratio of torchft's median to regroup's."""
    arms = {
        name: stats.summary(values)
        for name in ("regroup", "torchft")
        if (values := [full_strength_s(trial) for trial in trials if trial.arm == name])
    }
    ratio = arms["torchft"]["p50"] / arms["regroup"]["p50"] if len(arms) == 2 else None
    return {"full_strength_s": arms, "ratio": ratio, "trials": [asdict(trial) for trial in trials]}


def full_strength_s(trial: Trial) -> float:
    """Return the time from the kill to the end of the first new step of all ranks, in seconds."""
    return trial.kill_to_new_step_s if trial.kill_to_full_strength_s is None else trial.kill_to_full_strength_s
