"""Compare predictions with measured rows: `python -m regroup.service.planner.evaluate FILE.csv --json PATH [--constants
C]`.

The constants come from the option, or are the default ones. They never depend on the evaluated file. Errors are
fractions.
"""

import argparse
import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from regroup.service.planner.constants import FITTED, Constants, from_json
from regroup.service.planner.measured_rows import Row, RowError, read_row
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.time_model import step_time


def evaluate(table: Iterable[Mapping[str, str]], constants: Constants = FITTED) -> dict[str, Any]:
    """Return all rows with predicted and measured values, the refused rows with reasons, and the mean errors."""
    evaluated: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for number, columns in enumerate(table, start=1):
        try:
            evaluated.append({"row": number, **_evaluate_row(read_row(columns), constants)})
        except RowError as error:
            refused.append({"row": number, "source": columns.get("source"), "reason": str(error)})
    sources = sorted({row["source"] for row in evaluated})
    return {
        "rows": evaluated,
        "refused": refused,
        "mape": {
            "all": _mean(evaluated, "error"),
            "memory": _mean(evaluated, "memory_error"),
            "by_source": {
                source: _mean([row for row in evaluated if row["source"] == source], "error") for source in sources
            },
        },
        "constants": vars(constants),
    }


def _evaluate_row(row: Row, constants: Constants) -> dict[str, Any]:
    step_s = step_time(row.work, row.cluster, row.plan, constants).step_s
    need = peak_bytes(row.work, row.plan, constants, row.states)
    return {
        "source": row.source,
        "model": row.name,
        "predicted": {**_rates(row, step_s), "mem_gb": need / 1e9},
        "measured": {
            **(_rates(row, row.step_s) if row.step_s is not None else {}),
            "mem_gb": "OOM" if row.out_of_memory else row.memory_gb,
        },
        "error": None if row.step_s is None else abs(step_s / row.step_s - 1),
        "memory_error": None if row.memory_gb is None else abs(need / (row.memory_gb * 1e9) - 1),
        "fits": need <= row.cluster.device.memory_bytes,
        "full_information": row.full,
        "inferred": dict(row.inferred),
    }


def _rates(row: Row, step_s: float) -> dict[str, float]:
    work, gpus = row.work, row.cluster.gpus
    flops = work.model.step_flops(work.global_batch, work.sequence) / (step_s * gpus)
    peak = row.cluster.device.flops(work.precision) / row.cluster.device.ceiling
    return {
        "step_s": step_s,
        "tok_s_gpu": work.global_batch * work.sequence / (step_s * gpus),
        "tflops_gpu": flops / 1e12,
        "mfu_pct": 100 * flops / peak,
    }


def _mean(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    errors = [row[name] for row in rows if row[name] is not None]
    return fmean(errors) if errors else None


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare predicted step time and memory with measured rows.")
    parser.add_argument("file", type=Path, metavar="FILE.csv")
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="output file")
    parser.add_argument("--constants", type=Path, metavar="C", help="output of `fit --out C`; default: built-in")
    arguments = parser.parse_args()
    constants = from_json(arguments.constants.read_text()) if arguments.constants else FITTED
    with arguments.file.open(newline="") as lines:
        document = evaluate(csv.DictReader(lines), constants)
    arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    mape = document["mape"]
    error = "not measured" if mape["all"] is None else f"{100 * mape['all']:.1f} %"
    print(
        f"{len(document['rows'])} rows evaluated, {len(document['refused'])} refused; mean error of step time: {error}"
    )


if __name__ == "__main__":
    main()
