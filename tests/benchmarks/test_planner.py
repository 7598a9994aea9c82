"""Tests of the planner benchmark: cross-validation on held-out rows, coverage by columns, regret."""

from pathlib import Path

import pytest

from benchmarks.planner import measure
from benchmarks.report import plots
from regroup.service.planner.constants import Constants
from regroup.service.planner.measured_rows import read_row
from regroup.service.planner.time_model import step_time


def row(source: str, layers: int, tp: int, mbs: int, factor: float = 1.0, **changed: str) -> dict[str, str]:
    """Return a row whose time is `factor` times the prediction of the defaults."""
    sizes = {"layers": layers, "hidden": 3072, "heads": 32, "seq": 2048, "gpus": 64, "tp": tp, "pp": 1, "dp": 64 // tp}
    text = {name: str(value) for name, value in {**sizes, "mbs": mbs, "gbs": 512}.items()}
    columns = {"source": source, "model": "GPT", "gpu": "A100", "precision": "fp16", "act_ckpt": "full", **text}
    ready = read_row(columns)
    step_s = step_time(ready.work, ready.cluster, ready.plan, Constants()).step_s
    return {**columns, "iter_s": str(step_s * factor), **changed}


def stack(name: str, factor: float) -> list[dict[str, str]]:
    """Return rows of two model sizes with four plans each."""
    return [row(name, layers, tp, mbs, factor) for layers in (16, 32) for tp in (1, 4) for mbs in (2, 4)]


def test_a_slower_stack_is_learned_from_its_own_rows_and_not_from_others(tmp_path: Path) -> None:
    document = measure([*stack("quick", 1.0), *stack("slow", 1.4)])
    within = document["mape"]["within_stack_by_stack"]
    across = document["mape"]["across_sources_by_stack"]
    assert within["slow"]["mape"] < 0.06
    assert across["slow"]["mape"] > 0.2, "the fold must exclude the rows of this stack"
    assert across["quick"]["median_ratio"] > 1.2
    plots.planner(document, tmp_path / "planner.png")
    assert (tmp_path / "planner.png").stat().st_size > 1000


def test_rejected_rows_reduce_the_coverage_and_are_listed() -> None:
    table = [*stack("quick", 1.0), row("quick", 16, 1, 2, dp="5"), row("quick", 16, 1, 2, iter_s="x")]
    document = measure(table)
    assert document["rows"]["eligible"] == 9, "text instead of a time is not a measurement"
    assert document["coverage"] == pytest.approx(8 / 9)
    assert [each["line"] for each in document["rows"]["refused"]] == [10]
    assert "gpus = 64" in document["rows"]["refused"][0]["reason"]


def test_regret_is_the_excess_cost_of_the_choice_over_the_best_measured_plan() -> None:
    table = stack("quick", 1.0)
    times = [float(each["iter_s"]) for each in table]
    right = measure(table)["regret"]
    assert right["top1_mean"] == right["top3_mean"] == 0
    assert right["worst_group"]["plans"] == 4
    assert [group["fitted_to"] for group in right["groups"]] == [4, 4], "the other size's rows, not its own"
    best = min(range(4), key=lambda index: times[index])
    table[best] = {**table[best], "iter_s": str(2 * times[best])}
    second = sorted(times[:4])[1]
    wrong = measure(table)["regret"]["groups"][0]
    assert wrong["top1"] == pytest.approx(2 * times[best] / second - 1)
    assert wrong["top3"] == 0
