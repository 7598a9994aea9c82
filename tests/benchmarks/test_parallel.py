"""Tests of the figures that the layouts benchmark computes from rounds."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gates.gated_trainer import ARM as TRAINER
from benchmarks.parallel import result
from benchmarks.report import plots


def trial_of(trainer: float, rounds: int = 40) -> dict[str, Any]:
    moments = [0.2 if number % 2 else 0.3 for number in range(rounds)]
    return {"max_loss_difference": 0.0, "rounds": [{TRAINER: m * trainer, "bare": m} for m in moments]}


def test_a_slower_trainer_has_a_lower_rate_and_the_worst_layout_counts(tmp_path: Path) -> None:
    document = result({"ddp": [trial_of(1.25), trial_of(1.25)], "pp4": [trial_of(0.5)]})
    assert document["layouts"]["ddp"]["value"] == pytest.approx(0.8)
    assert document["layouts"]["pp4"]["value"] == pytest.approx(2.0)
    assert document["min_ratio"] == pytest.approx(0.8)
    assert document["max_ci_half_width"] == pytest.approx(0.0, abs=1e-9)
    plots.layouts(document, tmp_path / "layouts.png")
    assert (tmp_path / "layouts.png").stat().st_size > 1000
