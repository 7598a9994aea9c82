"""The result of a simulation as one sentence."""

from typing import Any

import pytest

from regroup.service.operations.capacity.scenario import WhatIfRequest
from regroup.service.operations.capacity.what_if import WaitForecast, WhatIf
from regroup.service.operations.capacity.what_if_summary import duration_text, summarize

SAME = WaitForecast(3, 600.0, 600.0, 0, 0, 0, 0)


def sentence(waits: WaitForecast, leaving: int = 0, **change: Any) -> str:
    result = WhatIf(0.0, 86_400.0, (), waits, {}, 0, leaving, 0.5, 0.5)
    return summarize(WhatIfRequest.model_validate(change), result)


@pytest.mark.parametrize(
    ("waits", "change", "expected"),
    [
        (SAME, {}, "Without a change, the median wait is 10 min."),
        (SAME, {"cancel": ["j"]}, "With 1 job cancelled, the median wait stays 10 min."),
        (
            WaitForecast(3, 3600.0, 60.0, 3, 0, 0, 0),
            {"add_nodes": {"count": 8}},
            "With 8 more nodes, the median wait falls from 1 h to 1 min; 3 jobs start earlier.",
        ),
        (
            WaitForecast(2, 60.0, 3660.0, 0, 1, 0, 1),
            {"quotas": {"b": {"limit": 1}, "a": {"limit": 1}}},
            "With other quotas of a, b, the median wait rises from 1 min to 1 h 1 min; 1 job starts later; "
            "1 job does not start within 1 d.",
        ),
        (
            WaitForecast(0, 0.0, 0.0, 0, 0, 0, 0),
            {"add_jobs": [{"name": "x", "ranks": 1, "duration_s": 60}]},
            "With 1 job added, no job that you see waits.",
        ),
    ],
)
def test_sentences(waits: WaitForecast, change: dict[str, Any], expected: str) -> None:
    assert sentence(waits, **change) == expected


def test_nodes_that_leave_are_counted() -> None:
    assert sentence(SAME, leaving=2, drain=["rack:r1"]).startswith("With 2 nodes drained, ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (3600, "1 h"), (3661, "1 h 1 min"), (90_000, "1 d 1 h"), (86_460, "1 d")],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
