"""Error of the planner against published measurements: each row is judged with constants fitted without that row.

`python -m benchmarks.planner --json benchmarks/results/planner.json [--data measured-configurations.csv]`

Folds:

* *Within a stack*: one model size of a software stack (its name, without version) is left out. The constants are fitted
  to the other rows of the stack. A stack with one size is judged with the default constants.
* *Across sources*: a whole stack is left out, with all its versions. The constants are fitted to all other stacks.
* *Regret*: one model on one cluster with at least two measured plans is left out. The constants are fitted to the other
  rows of the stack.
"""

import csv
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.report import plots
from benchmarks.report.output import arguments, write_result
from regroup.service.domain.hardware import DEVICES
from regroup.service.planner.constants import Constants
from regroup.service.planner.fit import fit
from regroup.service.planner.measured_rows import Row, RowError, read_row
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.model_shape import PRESETS
from regroup.service.planner.search import Limits, search
from regroup.service.planner.time_model import step_time
from regroup.service.planner.types import Cluster, Work

_ELIGIBLE = ("layers", "hidden", "seq", "gpu", "gpus", "tp", "pp", "mbs", "gbs", "precision")
_MEASURED = ("iter_s", "tok_s_gpu", "tflops_gpu")
_SEARCHES = {"search_1024_gpus_s": ("gpt3-175b", 1024, 2048), "search_16384_gpus_s": ("llama3-405b", 16384, 16384)}

Judged = tuple[Row, float]
"""A row, and the prediction for it from constants that were fitted without that row."""


def main() -> None:
    """Measure, write the result and print the main figures."""
    parser = arguments(__doc__ or "", trials=3)
    default = Path("../shared/data/measured-configurations.csv")
    parser.add_argument("--data", type=Path, default=default, metavar="CSV", help=f"measured rows, default {default}")
    options = parser.parse_args()
    with options.data.open(newline="") as lines:
        table = list(csv.DictReader(lines))
    document = measure(table)
    document |= {name: min(_search_s(*case) for _ in range(options.trials)) for name, case in _SEARCHES.items()}
    write_result(options.json, document)
    plots.planner(document, options.json.with_suffix(".png"))
    for name in ("mape", "coverage", "regret", *_SEARCHES):
        print(name, document[name])


def measure(table: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return all figures except the search times."""
    rows: list[Row] = []
    refused: list[dict[str, Any]] = []
    for number, columns in enumerate(table, start=2):
        try:
            rows.append(read_row(columns))
        except RowError as error:
            refused.append({"line": number, "source": columns.get("source"), "reason": str(error)})
    eligible = sum(_is_eligible(columns) for columns in table)
    timed = [row for row in rows if row.full and row.step_s is not None]
    weighed = [row for row in rows if row.full and row.memory_gb is not None]

    within = _left_out(timed, lambda row: (row.stack, row.size), _same_stack(timed), _step_s)
    across = _left_out(timed, lambda row: row.stack, timed, _step_s)
    versions = _left_out(timed, lambda row: row.source, timed, _step_s)
    memory = _left_out(weighed, lambda row: (row.stack, row.size), _same_stack(weighed), _memory_gb)
    others = [row for row in rows if not row.full and row.step_s is not None]
    constants = fit(timed)
    incomplete = [(row, _step_s(row, constants)) for row in others]
    groups = _regrets(timed)
    worst = max(groups, key=lambda group: group["top1"], default=None)
    return {
        "mape": {
            "within_stack": _mape(within, _measured_s),
            "across_sources": _mape(across, _measured_s),
            "memory": _mape(memory, _measured_gb),
            "median": {"within_stack": _middle(within), "across_sources": _middle(across)},
            "across_versions": _mape(versions, _measured_s),
            "within_stack_by_stack": _by_stack(within, _measured_s),
            "across_sources_by_stack": _by_stack(across, _measured_s),
            "memory_by_stack": _by_stack(memory, _measured_gb),
            "rows_without_full_information": _by_stack(incomplete, _measured_s),
        },
        "coverage": len(timed) / eligible,
        "rows": {"eligible": eligible, "judged": len(timed), "memory": len(weighed), "refused": refused},
        "regret": {
            "top1_mean": _mean([group["top1"] for group in groups]),
            "top3_mean": _mean([group["top3"] for group in groups]),
            "worst_group": worst,
            "groups": groups,
        },
        "points": [
            {"stack": row.stack, "model": row.name, "measured_s": row.step_s, "within_s": near, "across_s": far}
            for (row, near), (_, far) in zip(_ordered(within), _ordered(across), strict=True)
        ],
        "constants": vars(constants),
    }


def _is_eligible(columns: Mapping[str, str]) -> bool:
    """Check from the columns alone that a row states its configuration and duration, even if `read_row` refuses it."""
    return all(columns.get(name) for name in _ELIGIBLE) and any(_is_number(columns.get(name)) for name in _MEASURED)


def _is_number(text: str | None) -> bool:
    try:
        return float(text or "") > 0
    except ValueError:
        return False


def _same_stack(rows: Sequence[Row]) -> Callable[[Row], list[Row]]:
    stacks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        stacks[row.stack].append(row)
    return lambda row: stacks[row.stack]


def _left_out(
    rows: Sequence[Row],
    fold_of: Callable[[Row], Hashable],
    teachers: Sequence[Row] | Callable[[Row], list[Row]],
    predict: Callable[[Row, Constants], float],
) -> list[Judged]:
    """Return each row with the prediction from constants that were fitted to `teachers` without the fold of the row."""
    folds: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        folds[fold_of(row)].append(row)
    judged: list[Judged] = []
    for fold, held in folds.items():
        pool = teachers(held[0]) if callable(teachers) else teachers
        constants = fit([row for row in pool if fold_of(row) != fold])
        judged += [(row, predict(row, constants)) for row in held]
    return judged


def _step_s(row: Row, constants: Constants) -> float:
    return step_time(row.work, row.cluster, row.plan, constants).step_s


def _memory_gb(row: Row, constants: Constants) -> float:
    return peak_bytes(row.work, row.plan, constants, row.states) / 1e9


def _measured_s(row: Row) -> float:
    assert row.step_s is not None
    return row.step_s


def _measured_gb(row: Row) -> float:
    assert row.memory_gb is not None
    return row.memory_gb


def _mape(judged: Iterable[Judged], measured: Callable[[Row], float]) -> float | None:
    return _mean([abs(predicted / measured(row) - 1) for row, predicted in judged])


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    return fmean(values) if values else None


def _middle(judged: Iterable[Judged]) -> float:
    return median(abs(predicted / _measured_s(row) - 1) for row, predicted in judged)


def _by_stack(judged: Iterable[Judged], measured: Callable[[Row], float]) -> dict[str, dict[str, float | None]]:
    parts: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        parts[each[0].stack].append(each)
    return {
        stack: {
            "rows": len(part),
            "mape": _mape(part, measured),
            "median_ratio": median(predicted / measured(row) for row, predicted in part),
        }
        for stack, part in sorted(parts.items())
    }


def _ordered(judged: Iterable[Judged]) -> list[Judged]:
    return sorted(judged, key=lambda each: id(each[0]))


def _regrets(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return how much slower the planner's choice among the measured plans is than the best of them, as a fraction."""
    stack = _same_stack(rows)
    by_question: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        by_question[(row.stack, row.name, row.work, row.cluster)].append(row)
    found: list[dict[str, Any]] = []
    for alike in by_question.values():
        plans: dict[Hashable, list[Row]] = defaultdict(list)
        for row in alike:
            plans[row.plan].append(row)
        if len(plans) < 2:
            continue
        held = {id(row) for row in alike}
        teachers = [row for row in stack(alike[0]) if id(row) not in held]
        constants = fit(teachers)
        measured = {plan: fmean(_measured_s(row) for row in runs) for plan, runs in plans.items()}
        ranked = sorted(plans, key=lambda plan: _step_s(plans[plan][0], constants))
        best = min(measured.values())
        first = alike[0]
        found.append(
            {
                "stack": first.stack,
                "model": f"{first.name} {first.work.model.parameters / 1e9:.1f}B",
                "gpus": first.cluster.gpus,
                "global_batch": first.work.global_batch,
                "plans": len(plans),
                "fitted_to": len(teachers),
                "top1": measured[ranked[0]] / best - 1,
                "top3": min(measured[plan] for plan in ranked[:3]) / best - 1,
                "worst_plan": max(measured.values()) / best - 1,
            }
        )
    return found


def _search_s(preset: str, gpus: int, batch: int) -> float:
    device = next(each for each in DEVICES if each.name == ("A100" if gpus <= 1024 else "H100"))
    cluster = Cluster(device, gpus, device.domain, device.network_bytes_s)
    work = Work(PRESETS[preset], batch, 8192 if gpus > 1024 else 2048)
    begun = time.process_time()
    search(work, cluster, Constants(), Limits())
    return time.process_time() - begun


if __name__ == "__main__":
    main()
