"""The list of operator tasks: complete, tested in Chromium and over MCP, with commands and pages that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from regroup.api.cli.main import app
from regroup.api.mcp.catalog import TOOLS
from tests.support.console.hands import MOST_INTERACTIONS
from tests.support.console.operator_tasks import OperatorTask, operator_tasks

ROOT = Path(__file__).parents[2]
TASKS = operator_tasks()
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


def marked_tasks() -> Iterator[str]:
    """Yield the id of each task that a test in Chromium is marked with."""
    for path in sorted((ROOT / "tests" / "console" / "tasks").rglob("test_*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.AsyncFunctionDef) and function.name.startswith("test_"):
                for mark in function.decorator_list:
                    match mark:
                        case ast.Call(func=ast.Name(id="operator_task"), args=[ast.Constant(value=str(task_id))]):
                            yield task_id
                        case _:
                            pass


def functions_of(path: str) -> set[str]:
    return {each.name for each in ast.parse((ROOT / path).read_text()).body if isinstance(each, ast.AsyncFunctionDef)}


def find_command(words: list[str]) -> list[str]:
    """Return the words that name a command of the CLI."""
    command: Any = typer.main.get_command(app)
    found: list[str] = []
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
        found.append(word)
    return found if found and not getattr(command, "commands", {}) else []


def options_of(words: list[str]) -> set[str]:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def test_there_are_24_tasks_with_different_ids() -> None:
    assert len(TASKS) == len({task.id for task in TASKS}) == len({task.title for task in TASKS}) == 24


def test_a_test_in_chromium_is_marked_with_each_task() -> None:
    assert sorted(set(marked_tasks())) == sorted(task.id for task in TASKS)


def test_a_function_does_each_task_over_mcp() -> None:
    assert {task.id for task in TASKS} - functions_of("tests/api/mcp/test_operator_tasks.py") == set()


@each_task
def test_a_task_has_one_to_three_interactions_which_are_sentences(task: OperatorTask) -> None:
    assert 1 <= len(task.steps) <= MOST_INTERACTIONS
    assert [text for text in task.steps if not re.fullmatch(r"[A-Z].*\.", text)] == []


@each_task
def test_a_task_has_commands_that_exist(task: OperatorTask) -> None:
    for command in task.command.split(" && "):
        product, *words = command.split()
        found = find_command(words)
        assert product == "regroup" and found, command
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        assert options - options_of(found) == set(), command


def test_a_command_that_does_not_exist_is_found() -> None:
    """Show that the test above can fail."""
    assert find_command(["audit"]) == [] and find_command(["frobnicate"]) == []
    assert find_command(["hooks", "redeliver", "PROJECT"]) == ["hooks", "redeliver"]


@each_task
def test_a_task_begins_on_a_page_of_the_console(task: OperatorTask) -> None:
    pages = (ROOT / "console" / "src" / "pages" / "index.ts").read_text()
    patterns = re.findall(r'pattern: "([^"]*)"', pages)
    path = task.page.split("?")[0]
    assert any(re.fullmatch(re.sub(r":\w+", "[^/]+", pattern), path) for pattern in patterns), task.page


def test_the_page_has_a_row_for_each_task_with_tools_that_exist() -> None:
    text = (ROOT / "docs" / "operations" / "operator-tasks.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == [task.title for task in TASKS]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[-1])}
    assert named - {tool.name for tool in TOOLS} == set() and all("`" in row[-1] for row in rows)
