"""Start and recovery of regroup, Ray Train (default and tuned settings), torchrun and torchft, in one run.

usage: python -m benchmarks.recovery --json PATH [--trials N] [--large-trials N] [--large-gb 1]
                                     [--arms regroup,regroup_cold,ray_train,ray_train_tuned,torchrun,torchft]

Each trial of each arm has a new Ray cluster of two nodes with two slots each. Only one cluster is alive at a time. The
arms take turns within a trial, in an order that rotates. Within a trial, each arm loses a rank at the same place.

Further trials have a model whose training state has 1 GB. Their figures are under `large`.
"""

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.arms import ray_train_arm, regroup_arm, torchft_arm, torchrun_arm
from benchmarks.peers.workload import Workload, write_text
from benchmarks.report import plots
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.tiers.recovered_job import workload_of
from benchmarks.trials import stats
from benchmarks.trials.trial import KillPoint, Trial, TrialError, draw_kill_point

_STEPS = 24
_FIRST_KILL_STEP, _LAST_KILL_STEP = 12, 20
"""First and last step of a kill. Both come after the first checkpoint of the arm that saves every ten steps."""
_LARGE_STEPS, _LAST_LARGE_KILL_STEP = 16, 14
_LARGE_ARMS = ("regroup", "ray_train", "ray_train_tuned", "torchrun")
_FIGURES = ("submit_to_first_step_s", "kill_to_first_step_s", "kill_to_new_step_s", "steps_lost")
_SEED = 2

Arm = Callable[[Workload, KillPoint, Path], Trial]
ARMS: Mapping[str, Arm] = {
    "regroup": lambda *given: regroup_arm.run("regroup", True, *given),
    "regroup_cold": lambda *given: regroup_arm.run("regroup_cold", False, *given),
    "ray_train": lambda *given: ray_train_arm.run("ray_train", ray_train_arm.SHIPPED, *given),
    "ray_train_tuned": lambda *given: ray_train_arm.run("ray_train_tuned", ray_train_arm.TUNED, *given),
    "torchrun": lambda *given: torchrun_arm.run("torchrun", *given),
    "torchft": lambda *given: torchft_arm.run("torchft", *given),
}


def main() -> int:
    """Run the trials and write the result."""
    parser = arguments(__doc__ or "", trials=5)
    parser.add_argument("--arms", default=",".join(ARMS), help="arms to run, comma-separated")
    parser.add_argument("--large-trials", type=int, default=3, help="trials of each arm with a large state")
    parser.add_argument("--large-gb", type=float, default=1.0, help="size of the large state in GB")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    names = given.arms.split(",")
    if "torchft" in names and not torchft_arm.is_installed():
        names.remove("torchft")
        print("skipping torchft: it is not installed. To install it: pip install torchft==0.2.0", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        _warm_page_cache()
        document: dict[str, Any] = {"arms": {}, "failures": []}
        if given.trials:
            workload = Workload(text=str(root / "text"), steps=_STEPS)
            document = _run_trials(workload, names, given.trials, _LAST_KILL_STEP, _folder(root, "small"))
            write_result(given.json, document)
        if given.large_trials:
            large = replace(workload_of(given.large_gb, root / "text"), steps=_LARGE_STEPS)
            some = [name for name in names if name in _LARGE_ARMS]
            document["large"] = _run_trials(
                large, some, given.large_trials, _LAST_LARGE_KILL_STEP, _folder(root, "large")
            )
            document["failures"] += document["large"]["failures"]
    write_result(given.json, document)
    if document["arms"]:
        plots.recovery(document, given.json.with_suffix(".png"))
    return 1 if document["failures"] else 0


def _run_trials(
    workload: Workload, names: Sequence[str], count: int, last_kill_step: int, root: Path
) -> dict[str, Any]:
    """Run all trials of a workload. Return the document of `result`, with the workload."""
    draw = random.Random(_SEED)
    trials, failures = list[Trial](), list[str]()
    control = regroup_arm.undisturbed(workload, _folder(root, "control")) if "regroup" in names else dict[str, Any]()
    for number in range(count):
        kill_point = draw_kill_point(draw, _FIRST_KILL_STEP, last_kill_step)
        for name in _rotated(names, number):
            folder = _folder(root, f"{number}-{name}")
            try:
                trials.append(ARMS[name](workload, kill_point, folder))
                _print_trial(trials[-1])
            except TrialError as error:
                failures.append(str(error))
                print(f"FAILED {error}", flush=True)
            shutil.rmtree(folder)  # checkpoints of a large state
    described = {**workload.to_json(), "text": "sources of the Python standard library"}
    return {**result(trials, failures, control), "workload": described}


def result(trials: Sequence[Trial], failures: Sequence[str], control: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document: all trials, a summary per arm, and the ratios of each median to that of regroup."""
    by_arm = {name: [trial for trial in trials if trial.arm == name] for name in ARMS}
    arms: dict[str, dict[str, Any]] = {
        name: {figure: stats.summary([getattr(trial, figure) for trial in some]) for figure in _FIGURES}
        for name, some in by_arm.items()
        if some
    }
    document: dict[str, Any] = {
        "arms": arms,
        "knobs": {
            "ray_train": ray_train_arm.SHIPPED.to_json(),
            "ray_train_tuned": ray_train_arm.TUNED.to_json(),
            "torchrun": dict(torchrun_arm.KNOBS),
        },
        "trials": [asdict(trial) for trial in trials],
        "failures": list(failures),
        "control": dict(control),
    }
    for key, name in (("ratio", "ray_train"), ("ratio_tuned", "ray_train_tuned"), ("ratio_torchrun", "torchrun")):
        if name in arms and "regroup" in arms:
            document[key] = {
                figure.removesuffix("_s"): arms[name][figure]["p50"] / arms["regroup"][figure]["p50"]
                for figure in _FIGURES
                if figure != "steps_lost"
            }
    if {"regroup", "torchft"} <= set(arms):
        whole = [trial.kill_to_full_strength_s for trial in by_arm["torchft"] if trial.kill_to_full_strength_s]
        arms["torchft"]["kill_to_full_strength_s"] = stats.summary(whole)
        document["ratio_torchft"] = {
            "full_strength": arms["torchft"]["kill_to_full_strength_s"]["p50"]
            / arms["regroup"]["kill_to_new_step_s"]["p50"]
        }
    if {"regroup_cold", "ray_train"} <= set(arms):
        document["ratio_without_standby"] = {
            "submit_to_first_step": arms["ray_train"]["submit_to_first_step_s"]["p50"]
            / arms["regroup_cold"]["submit_to_first_step_s"]["p50"]
        }
    if "regroup" in arms:
        # A trial that did not finish has no digest, so it counts as not equal.
        ours = [trial for name in ("regroup", "regroup_cold") for trial in by_arm[name]]
        digests = [trial.details["digest"] for trial in ours]
        document["regroup"] = {
            "steps_lost_max": max(trial.steps_lost for trial in ours),
            "bitwise_equal": all(digest == control["digest"] for digest in digests)
            and not any(failure.startswith("regroup") for failure in failures),
        }
    return document


def _warm_page_cache() -> None:
    """Import torch and Ray once, so that the first arm does not pay for the disk reads."""
    modules = "torch, torch.distributed.fsdp, torch.distributed.checkpoint, ray, ray.train.torch, sqlalchemy, fastapi"
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True, capture_output=True)


def _rotated(names: Sequence[str], by: int) -> list[str]:
    by %= len(names)
    return [*names[by:], *names[:by]]


def _folder(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    return folder


def _print_trial(trial: Trial) -> None:
    where = f"rank {trial.kill_point.rank} at step {trial.kill_point.step} in {trial.kill_point.phase}"
    print(
        f"{trial.arm}: first step after {trial.submit_to_first_step_s:.2f} s; killed {where}, "
        f"recovered after {trial.kill_to_first_step_s:.2f} s, {trial.steps_lost} steps lost"
        + (f", all ranks after {trial.kill_to_full_strength_s:.2f} s" if trial.kill_to_full_strength_s else ""),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
