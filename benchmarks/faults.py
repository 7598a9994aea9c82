"""Cost of each kind of failure: many injections into one job, compared with an undisturbed run.

usage: python -m benchmarks.faults --json PATH [--injections N] [--soak-minutes M]
                                   [--rows rank_exit,hang,supervisor,node_loss,scenarios,torchft]

`scenarios` runs every scenario of `regroup chaos` three times. Rows that are not run stay unchanged in PATH. Each row
states the machine that it was measured on.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arms import torchft_arm
from benchmarks.injection import fault_peers, fault_scenarios, fault_soak
from benchmarks.injection.fault_jobs import run_job
from benchmarks.injection.fault_rows import figures_of, plan_of, trials_of
from benchmarks.peers.workload import NODES, SLOTS, write_text
from benchmarks.report import plots
from benchmarks.report.facts import machine_facts
from benchmarks.report.output import arguments, end_tidily_on_sigterm, write_result
from regroup.api.chaos.server_process import LocalService
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import Record
from regroup.service.domain.errors import RegroupError

ROWS = ("rank_exit", "hang", "supervisor", "node_loss")
SCENARIOS, PEER = "scenarios", "torchft"
_SPARES = {"node_loss": 1}
_SEED = 5
_FROM_MEMORY = ("rank_exit", "hang")
"""Rows whose faults leave the newest snapshot set complete in memory."""


def main() -> int:
    """Run the rows and write the result after each row."""
    parser = arguments(__doc__ or "", trials=1)
    parser.add_argument("--injections", type=int, default=20, metavar="N", help="injections per row, default 20")
    parser.add_argument(
        "--rows", default=",".join((*ROWS, SCENARIOS, PEER)), help="rows to run, comma-separated; `none` runs no row"
    )
    parser.add_argument(
        "--soak-minutes", type=float, default=0.0, metavar="M", help="also run two soaks of M minutes each"
    )
    given = parser.parse_args()
    end_tidily_on_sigterm()
    document: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    document["failures"] = []
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as scratch:
        root = Path(scratch)
        write_text(root / "text")
        rows = [name for name in given.rows.split(",") if name != "none"]
        if PEER in rows:
            rows.remove(PEER)
            if torchft_arm.is_installed():
                document[PEER] = fault_peers.run(root, _SEED, document["failures"])
                _write(given.json, document)
            else:
                print("skipping torchft: it is not installed. To install it: pip install torchft==0.2.0", flush=True)
        if SCENARIOS in rows:
            rows.remove(SCENARIOS)

            def save_rows(found: dict[str, Any]) -> None:
                document[SCENARIOS] = found
                _write(given.json, document)

            fault_scenarios.run(document["failures"], save_rows)
        for row in rows:
            document[row] = _row(root, row, given.injections, document["failures"])
            _write(given.json, document)
        if given.soak_minutes:
            document["soak"] = fault_soak.run(root, given.soak_minutes, _SEED, document["failures"])
            _write(given.json, document)
    return 1 if document["failures"] else 0


def _row(root: Path, row: str, injections: int, failures: list[str]) -> dict[str, Any]:
    plan = plan_of(row, injections, _SEED)
    print(
        f"{row}: {injections} injections into {plan.steps} steps, after an undisturbed run of the same length",
        flush=True,
    )
    with LocalService(root / row, nodes=NODES + _SPARES.get(row, 0), slots=SLOTS) as service:
        control = run_job(service, root, FaultPlan("control", _SEED, plan.steps))
        print(f"{row}: undisturbed, {_seconds(control):.0f} s", flush=True)
        record = run_job(service, root, plan, injections)
    trials = trials_of(row, record)
    problems = _problems(record, control, injections, trials)
    failures += [f"{row}: {problem}" for problem in problems]
    for problem in problems:
        print(f"FAILED {row}: {problem}", flush=True)
    return {
        **(figures_of(row, trials) if trials else {}),
        "bitwise_equal": record.job["digest"] == control.job["digest"],
        "ledger_exact": record.ledger["exact"],
        "false_alarms": record.stragglers + control.stragglers,
        "left": list(record.leftovers),
        "trials": trials,
        "plan": plan.to_json(),
        "measured_on": machine_facts(),
    }


def _seconds(record: Record) -> float:
    return record.rows[-1]["time_s"] - record.rows[0]["time_s"] if record.rows else 0.0


def _problems(record: Record, control: Record, injections: int, trials: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [
        f"job ended {run.job['state']}: {run.job['message']}"
        for run in (control, record)
        if run.job["state"] != "SUCCEEDED"
    ]
    if len(trials) != injections:
        found.append(f"{injections} injections were planned, but {len(trials)} were observed to finish")
    if not record.ledger["exact"]:
        found.append(f"ledger: {record.ledger['problems']}")
    return found


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that combine several rows, from the rows that the document contains."""
    rows = {row: document[row] for row in ROWS if row in document}
    found: dict[str, Any] = {}
    if lost := [rows[row]["steps_lost_max"] for row in _FROM_MEMORY if "steps_lost_max" in rows.get(row, {})]:
        found["steps_lost_max_memory"] = max(lost)
    if rows:
        found["straggler"] = {"false_alarms": sum(row["false_alarms"] for row in rows.values())}
    if document.get(PEER, {}).get("ratio"):
        found["ratio"] = {"torchft_full_strength": document[PEER]["ratio"]}
    return found


def _write(path: Path, document: dict[str, Any]) -> None:
    document |= summary(document)
    write_result(path, document)
    plots.faults(document, path.with_suffix(".png"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RegroupError as error:
        sys.exit(f"error: {error}")
