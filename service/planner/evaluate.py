"""Predicted beside measured, row by row: `python -m regroup.service.planner.evaluate FILE.csv --json PATH [--constants
C]`.

The constants are those given, or the shipped ones; they never depend on the file that is evaluated. Errors are
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
    """All rows with what was predicted and measured, those refused with the reason, and the mean errors."""
    judged: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for number, columns in enumerate(table, start=1):
        try:
            judged.append({"row": number, **_judge(read_row(columns), constants)})
        except RowError as error:
            refused.append({"row": number, "source": columns.get("source"), "reason": str(error)})
    sources = sorted({row["source"] for row in judged})
    return {
        "rows": judged,
        "refused": refused,
        "mape": {
            "all": _mean(judged, "error"),
            "memory": _mean(judged, "memory_error"),
            "by_source": {
                source: _mean([row for row in judged if row["source"] == source], "error") for source in sources
            },
        },
        "constants": vars(constants),
    }


def _judge(row: Row, constants: Constants) -> dict[str, Any]:
    step_s = step_time(row.work, row.cluster, row.plan, constants).step_s
    need = peak_bytes(row.work, row.plan, constants, row.kept)
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
    """The command line."""
    parser = argparse.ArgumentParser(description="Predicted step time and memory beside measured ones.")
    parser.add_argument("file", type=Path, metavar="FILE.csv")
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="where the result goes")
    parser.add_argument("--constants", type=Path, metavar="C", help="of `fit --out C`; the shipped ones if absent")
    asked = parser.parse_args()
    constants = from_json(asked.constants.read_text()) if asked.constants else FITTED
    with asked.file.open(newline="") as lines:
        document = evaluate(csv.DictReader(lines), constants)
    asked.json.write_text(json.dumps(document, indent=1) + "\n")
    mape = document["mape"]
    print(f"{len(document['rows'])} rows judged, {len(document['refused'])} refused; step time off by", end=" ")
    print("nothing measured" if mape["all"] is None else f"{100 * mape['all']:.1f} % in the mean")


if __name__ == "__main__":
    main()
