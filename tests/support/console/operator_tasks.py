"""The tasks of operators, by id. Their tests in Chromium and over MCP have the same ids."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

FILE = Path(__file__).parents[3] / "docs" / "generators" / "operator_tasks.toml"
Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class OperatorTask:
    """A task of `operator_tasks.toml`."""

    id: str
    title: str
    page: str
    """Address of the page on which it is done."""
    steps: tuple[str, ...]
    """Interactions of a person on that page, at most three."""
    command: str
    """The same with `regroup`."""


def operator_tasks() -> list[OperatorTask]:
    """Read all tasks, in the order of the documentation."""
    tables = tomllib.loads(FILE.read_text())["task"]
    return [OperatorTask(**{**table, "steps": tuple(table["steps"])}) for table in tables]


def operator_task(task_id: str) -> Callable[[Test], Test]:
    """Mark the test of a task in Chromium."""
    assert task_id in {task.id for task in operator_tasks()}, f"operator_tasks.toml has no task {task_id!r}"
    return pytest.mark.operator_task(task_id)
