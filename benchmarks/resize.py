"""Resize of a running job: regroup and the elastic worker group of Ray Train, in one run on one machine.

usage: python -m benchmarks.resize --json PATH [--trials N] [--large-trials N] [--large-gb 1]
                                   [--arms regroup,ray_train]

In each trial of regroup, a job of four ranks runs on three nodes of two slots. The trial resizes it to 6, 3, 4, 6, 3
and 4 ranks. Each trial of Ray Train starts with four workers, with a range of four to six, on two such nodes. Then a
third node joins, and Ray Train decides when to resize.

The gap is the time from the last step at the old size to the first step at the new size. That first step may repeat an
earlier one. The time until the decision does not count for either arm.

Further trials have a model whose training state has 1 GB. Their figures are under `large`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.arms.ray_train_arm import SHIPPED
from benchmarks.cluster import processes
from benchmarks.cluster.ray_nodes import ray_nodes, settle
from benchmarks.cluster.regroup_server import Server, run_server
from benchmarks.peers.ray_train_loop import RayTrainSettings
from benchmarks.peers.workload import NODES, SLOTS, Workload, write_text
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from benchmarks.tiers.recovered_job import workload_of
from benchmarks.trials import stats
from benchmarks.trials.trial import TrialError
from regroup.service.domain.errors import RegroupError

_SIZES = (6, 3, 4, 6, 3, 4)
_LEAST, _FIRST, _MOST = 2, 4, 6
_STEPS_AT_A_SIZE = 8
_STEPS = 120
_LARGE_STEPS = 80
_LARGE_SEQUENCE = 64
_PATIENCE_S = 300.0
_RESIZE_INTERVAL_S = 10.0
"""Interval at which Ray Train checks for capacity. Its default is 60 s. The shorter interval shortens the benchmark,
but not the gap."""


@dataclass(frozen=True)
class Change:
    """A resize."""

    arm: str
    before: int
    after: int
    gap_s: float
    gap_to_new_s: float
    """Time from the last step at the old size to the first step that no earlier run had done."""
    steps_lost: int


def main() -> int:
    """Run the trials and write the result."""
    parser = arguments(__doc__ or "", trials=3)
    parser.add_argument("--arms", default=",".join(ARMS), help="arms to run, comma-separated")
    parser.add_argument("--large-trials", type=int, default=1, help="trials of each arm with a large state")
    parser.add_argument("--large-gb", type=float, default=1.0, help="size of the large state in GB")
    given = parser.parse_args()
    end_tidily_on_sigterm()
    names: list[str] = given.arms.split(",")
    document: dict[str, Any] = {"failures": []}
    with tempfile.TemporaryDirectory(prefix="bench-resize-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        # Twelve micro-batches: four per rank with three ranks, three with four ranks, two with six ranks.
        if given.trials:
            workload = Workload(text=str(root / "text"), steps=_STEPS, global_batch=12, micro_batch=1, sequence=128)
            document = _run_trials(workload, names, given.trials, root / "small")
            write_result(given.json, document)
        if given.large_trials:
            large = replace(
                workload_of(given.large_gb, root / "text"),
                steps=_LARGE_STEPS,
                global_batch=12,
                sequence=_LARGE_SEQUENCE,
            )
            document["large"] = _run_trials(large, names, given.large_trials, root / "large")
            document["failures"] += document["large"]["failures"]
    write_result(given.json, document)
    return 1 if document["failures"] else 0


def _run_trials(workload: Workload, names: Sequence[str], count: int, root: Path) -> dict[str, Any]:
    """Run all trials of a workload. Return the document of `result`, with the workload."""
    changes, failures, exact = list[Change](), list[str](), list[bool]()
    for number in range(count):
        for name in names:
            folder = root / f"{number}-{name}"
            folder.mkdir(parents=True)
            try:
                found, is_exact = ARMS[name](workload, folder)
            except TrialError as error:
                failures.append(str(error))
                print(f"FAILED {error}", flush=True)
                continue
            finally:
                shutil.rmtree(folder, ignore_errors=True)  # checkpoints of a large state
            changes += found
            exact.append(is_exact)
            transitions = ", ".join(f"{each.before}→{each.after} {each.gap_s:.2f} s" for each in found)
            print(f"{name}: {transitions}; {max(each.steps_lost for each in found)} steps lost", flush=True)
    described = {**workload.to_json(), "text": "sources of the Python standard library"}
    return {**result(changes), "ledger_exact": all(exact), "failures": failures, "workload": described}


def result(changes: Sequence[Change]) -> dict[str, Any]:
    """Return all changes, a summary per arm, and the ratio of the medians for 4→6, the change that both arms make."""
    by_arm = {name: [each for each in changes if each.arm == name] for name in ARMS}
    document: dict[str, Any] = {"changes": [asdict(each) for each in changes], "arms": {}}
    for name, some in by_arm.items():
        if some:
            same = [each.gap_s for each in some if (each.before, each.after) == (_FIRST, _MOST)]
            document["arms"][name] = {
                "gap_s": stats.summary([each.gap_s for each in some]),
                "gap_4_to_6_s": stats.summary(same),
                "gap_to_new_s": stats.summary([each.gap_to_new_s for each in some]),
                "steps_lost_max": max(each.steps_lost for each in some),
            }
    arms = document["arms"]
    if "regroup" in arms:
        document["gap_p50_s"] = arms["regroup"]["gap_s"]["p50"]
        document["steps_lost_max"] = arms["regroup"]["steps_lost_max"]
    if {"regroup", "ray_train"} <= set(arms):
        document["ratio_ray_train"] = arms["ray_train"]["gap_4_to_6_s"]["p50"] / arms["regroup"]["gap_4_to_6_s"]["p50"]
    return document


# ---------------------------------------------------------------- regroup


def _regroup(workload: Workload, folder: Path) -> tuple[list[Change], bool]:
    layout = {"dp": {"min": _LEAST, "target": _FIRST, "max": _MOST}, "data_parallel": "fsdp"}
    with run_server(folder, nodes=3) as server:
        settle()
        job = server.client.submit(workload.job_spec("resize", layout=layout)).id
        try:
            for size in _SIZES:
                _train_on(server, job)
                server.client.resize(job, size)
                server.client.wait_for_resize(job, timeout_s=_PATIENCE_S)
        except (RegroupError, TimeoutError) as error:
            raise TrialError(f"regroup: {error}") from error
        done = server.finish(job)
        sizes = {each.number: each.world_size for each in server.client.generations(job)}
        ledger = server.client.ledger(job)
        return changes_of(server.steps(job), sizes, done["incidents"]), ledger.exact


def _train_on(server: Server, job: str) -> None:
    until, deadline = server.client.get(job).step + _STEPS_AT_A_SIZE, time.monotonic() + _PATIENCE_S
    while (found := server.client.get(job)).step < until:
        if found.state.is_terminal or time.monotonic() > deadline:
            raise TrialError(f"regroup: the job is {found.state} at step {found.step}, before step {until}")
        time.sleep(0.05)


def changes_of(
    rows: Sequence[Mapping[str, Any]], sizes: Mapping[int, int], incidents: Sequence[Mapping[str, Any]]
) -> list[Change]:
    """Return the resizes of a job, from its committed steps in order and the number of ranks of each generation."""
    lost = {each["generation"]: each["steps_lost"] for each in incidents}
    found: list[Change] = []
    for before, after in pairwise(rows):
        old, new = before["generation"], after["generation"]
        if old != new:
            gap_s = after["time_s"] - before["time_s"]
            found.append(Change("regroup", sizes[old], sizes[new], gap_s, gap_s, lost[old]))
    return found


# ---------------------------------------------------------------- Ray Train


def _ray_train(workload: Workload, folder: Path) -> tuple[list[Change], bool]:
    events = folder / "events.jsonl"
    with ray_nodes(NODES, SLOTS, SHIPPED.environment) as cluster:
        settle()
        settings = RayTrainSettings(
            address=cluster.address,
            events=str(events),
            storage=str(folder / "storage"),
            workload=replace(workload, steps=100_000).to_json(),
            ranks=_FIRST,
            most_ranks=_MOST,
            resize_every_s=_RESIZE_INTERVAL_S,
            checkpoint_every=SHIPPED.checkpoint_every,
            direct=SHIPPED.direct,
            kill_rank=-1,
            kill_step=0,
            kill_phase="",
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
                _noted(events, driver, lambda steps: any(each["step"] > 12 for each in steps))
                cluster.join()
                steps = _noted(events, driver, _is_past)
            except TrialError as error:
                tail = (folder / "driver.log").read_text()[-2000:]
                raise TrialError(f"ray_train: {error}; end of the driver's log: {tail}") from None
            finally:
                processes.end(processes.descendants([driver.pid]), grace_s=1.0)
                driver.wait()
    return [change_in(steps)], True


def _is_past(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Check that a step at the new size goes beyond all steps at the old size."""
    old = max(each["step"] for each in steps if each["ranks"] == _FIRST)
    return any(each["ranks"] == _MOST and each["step"] > old for each in steps)


def change_in(steps: Sequence[Mapping[str, Any]]) -> Change:
    """Return the resize found in the steps that rank 0 recorded."""
    old = [each for each in steps if each["ranks"] == _FIRST]
    new = [each for each in steps if each["ranks"] == _MOST]
    last_s, reached = old[-1]["time_s"], max(each["step"] for each in old)
    beyond = next(each["time_s"] for each in new if each["step"] > reached)
    return Change(
        "ray_train", _FIRST, _MOST, new[0]["time_s"] - last_s, beyond - last_s, reached - (new[0]["step"] - 1)
    )


def _noted(
    events: Path, driver: "subprocess.Popen[bytes]", is_enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        noted = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        steps = [each for each in noted if each["kind"] == "step"]
        if steps and is_enough(steps):
            return steps
        if driver.poll() is not None:
            raise TrialError(f"the driver exited with code {driver.returncode} after {len(steps)} steps")
        time.sleep(0.1)
    raise TrialError(f"the expected steps did not appear within {_PATIENCE_S:.0f} s")


Arm = Callable[[Workload, Path], tuple[list[Change], bool]]
ARMS: Mapping[str, Arm] = {"regroup": _regroup, "ray_train": _ray_train}

if __name__ == "__main__":
    sys.exit(main())
