"""Recovery of a user's training function compared with the built-in trainer, in one run on one machine.

usage: python -m benchmarks.functions --json PATH [--trials N]

All jobs train the same model on the same text with a snapshot every step. In a trial, the jobs run one after the other
on one new server, in an order that rotates. Each job loses a rank at the same place.
"""

import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.arms.regroup_arm import read_trial
from benchmarks.cluster.ray_nodes import settle
from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.peers.workload import RANKS, Workload, write_text
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.trials import stats
from benchmarks.trials.trial import KillPoint, Trial, TrialError, draw_kill_point

_STEPS = 24
_FIRST_KILL_STEP, _LAST_KILL_STEP = 8, 20
_PHASES = ("forward", "optimizer")
"""Phases that a training function also has."""
_FIGURES = ("submit_to_first_step_s", "kill_to_first_step_s", "kill_to_new_step_s", "steps_lost")
_BUILTIN, _FUNCTION, _ON_SHARDS = ARMS = ("builtin", "function", "function-on-shards")
_SEED = 3
_SETTLE_S = 10.0


def main() -> int:
    """Run the trials and write the result."""
    given = arguments(__doc__ or "", trials=5).parse_args()
    end_tidily_on_sigterm()
    draw = random.Random(_SEED)
    trials: list[Trial] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-functions-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        workload = Workload(text=str(root / "text"), steps=_STEPS)
        with run_server(root / "control") as server:
            control = {arm: _undisturbed(server, _spec(arm, workload)) for arm in ARMS}
        for number in range(given.trials):
            kill_point = draw_kill_point(draw, _FIRST_KILL_STEP, _LAST_KILL_STEP, _PHASES)
            with run_server(root / str(number)) as server:
                for arm in (*ARMS[number % len(ARMS) :], *ARMS[: number % len(ARMS)]):
                    try:
                        trials.append(_trial(server, arm, _spec(arm, workload, _fault(kill_point)), kill_point))
                        print(f"{arm}: recovered after {trials[-1].kill_to_first_step_s:.2f} s", flush=True)
                    except TrialError as error:
                        failures.append(f"{arm}: {error}")
                        print(f"FAILED {failures[-1]}", flush=True)
            document = result(trials, failures, control)
            document["workload"] = {**workload.to_json(), "text": "sources of the Python standard library"}
            write_result(given.json, document)  # after each trial, so that an interrupted run keeps its results
    return 1 if failures else 0


def result(trials: Sequence[Trial], failures: Sequence[str], control: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document: all trials, a summary per arm, the ratios of medians, and the bitwise comparison."""
    by_arm = {arm: [trial for trial in trials if trial.arm == arm] for arm in ARMS}
    arms = {
        arm: {figure: stats.summary([getattr(trial, figure) for trial in some]) for figure in _FIGURES}
        for arm, some in by_arm.items()
        if some
    }
    document: dict[str, Any] = {
        "arms": arms,
        "bitwise_equal": {
            arm: bool(some)
            and all(trial.details["digest"] == control[arm]["digest"] for trial in some)
            and not any(failure.startswith(f"{arm}:") for failure in failures)
            for arm, some in by_arm.items()
        },
        "trials": [asdict(trial) for trial in trials],
        "failures": list(failures),
        "control": dict(control),
    }
    for key, arm in (("ratio", _FUNCTION), ("ratio_on_shards", _ON_SHARDS)):
        if {arm, _BUILTIN} <= arms.keys():
            document[key] = {
                figure.removesuffix("_s"): arms[arm][figure]["p50"] / arms[_BUILTIN][figure]["p50"]
                for figure in _FIGURES
                if figure != "steps_lost"
            }
    return document


def _spec(arm: str, workload: Workload, faults: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    spec = workload.job_spec(arm, faults=list(faults))
    if arm == _BUILTIN:
        return spec
    names = ("text", "sequence", "lr", "eps", "betas", "weight_decay", "clip_norm")
    return {
        **spec,
        "workload": {"kind": "function", "function": "function_loop:train"},
        "code": {"working_dir": str(Path(__file__).parent / "peers")},
        "preload": ["function_loop"],
        "args": {
            "model": workload.model,
            "on_shards": arm == _ON_SHARDS,
            **{name: workload.to_json()[name] for name in names},
        },
        "training": {name: spec["training"][name] for name in ("steps", "global_batch", "micro_batch")},
        "layout": {"dp": RANKS},
    }


def _fault(kill_point: KillPoint) -> list[dict[str, Any]]:
    return [{"at": {"rank": kill_point.rank, "step": kill_point.step, "phase": kill_point.phase}, "do": "sigkill"}]


def _undisturbed(server: Server, spec: Mapping[str, Any]) -> dict[str, Any]:
    job = server.finish(server.client.submit(spec).id)
    rows = server.steps(job["id"])
    return {
        "digest": job["digest"]["parameters"],
        "parameter_count": job["parameter_count"],
        "first_loss": rows[0]["loss"],
        "last_loss": rows[-1]["loss"],
        "step_s": stats.median([row["duration_s"] for row in rows[1:]]),
    }


def _trial(server: Server, arm: str, spec: Mapping[str, Any], kill_point: KillPoint) -> Trial:
    idle = settle(patience_s=_SETTLE_S)
    submitted = time.time()
    done = server.finish(server.client.submit(spec).id)
    return read_trial(arm, kill_point, done, server.steps(done["id"]), submitted, idle)


if __name__ == "__main__":
    sys.exit(main())
