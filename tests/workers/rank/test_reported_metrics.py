"""Numbers of a report that a step's row shows."""

import math

import numpy as np

from regroup.workers.rank.reported_metrics import MOST, numbers


def test_numbers_are_kept_with_the_path_to_them() -> None:
    metrics = {
        "loss": np.float32(0.5),
        "epoch": 3,
        "scores": {"top": {"1": 0.25}},
        "best": True,
        "name": "x",
        "all": [1],
    }
    assert numbers(metrics) == {"loss": 0.5, "epoch": 3.0, "scores/top/1": 0.25, "best": 1.0}
    assert math.isnan(numbers({"loss": math.nan})["loss"])


def test_a_report_of_thousands_is_cut() -> None:
    assert list(numbers({f"m{number}": number for number in range(5000)})) == [f"m{number}" for number in range(MOST)]
