"""A report of which operator tasks passed, for the benchmark of the console: `REGROUP_TASK_REPORT=FILE`.

A task passed if all of its tests passed.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "REGROUP_TASK_REPORT"
_outcomes: dict[str, bool] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    marker = item.get_closest_marker("operator_task")
    if marker is not None and (report.when == "call" or not report.passed):
        task_id = str(marker.args[0])
        _outcomes[task_id] = report.passed and _outcomes.get(task_id, True)
    return report


def pytest_sessionfinish() -> None:
    if path := os.environ.get(VARIABLE):
        Path(path).write_text(json.dumps(_outcomes, indent=1))
