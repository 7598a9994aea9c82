"""Page with the tasks of operators: in the console, with the command, and over MCP.

The tools of a task are those that its test over MCP calls.
"""

import ast
import tomllib
from typing import Any

from generators.source import ROOT, parse_module, table_row

_TASKS = ROOT / "docs" / "generators" / "operator_tasks.toml"
_TESTS = ROOT / "tests" / "api" / "mcp" / "test_operator_tasks.py"
_CALLS = frozenset({"read", "change", "preview", "refused"})
"""Methods of the agent in the tests that call a tool."""
_HEAD = """# Tasks of operators

{count} tasks that an operator does often. The console does each in at most three interactions after its page has
opened: a click, a field that is filled, or a choice. A task with two halves, such as to create and to revoke, has at
most three for each half. An agent does the same with the tools of [`regroup mcp`](agents.md), and a script with the
`regroup` command. Words in capitals stand for your own names.

`make docs` writes this page from `docs/generators/operator_tasks.toml`. Tests do each task in Chromium
(`tests/console/tasks`) and over MCP (`tests/api/mcp/test_operator_tasks.py`), and check the result through the API.

| task | page of the console | interactions | command | tools of MCP |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the page.

    Raises:
        LookupError: no test over MCP does a task.
    """
    tasks = tomllib.loads(_TASKS.read_text())["task"]
    tools = _tools_by_task()
    if unknown := [task["id"] for task in tasks if task["id"] not in tools]:
        raise LookupError(f"{_TESTS.name} has no function {unknown[0]!r}; add it, or correct operator_tasks.toml")
    return _HEAD.format(count=len(tasks)) + "\n".join(_row(task, tools[task["id"]]) for task in tasks) + "\n"


def _row(task: dict[str, Any], tools: list[str]) -> str:
    steps = " ".join(f"{number}. {text}" for number, text in enumerate(task["steps"], 1))
    page = f"`/console/{task['page']}`"
    return table_row(task["title"], page, steps, f"`{task['command']}`", ", ".join(f"`{tool}`" for tool in tools))


def _tools_by_task() -> dict[str, list[str]]:
    """Return the function of each task → the tools that it calls, in the order of their first calls."""
    return {
        function.name: list(dict.fromkeys(_tools_in(function)))
        for function in parse_module(_TESTS).body
        if isinstance(function, ast.AsyncFunctionDef)
    }


def _tools_in(function: ast.AsyncFunctionDef) -> list[str]:
    """Return the first arguments of calls such as `agent.read("list_jobs")`, in the order of the source."""
    found: list[tuple[int, int, str]] = []
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="agent"), attr=method),
                args=[ast.Constant(value=str(tool)), *_],
            ) if method in _CALLS:
                found.append((node.lineno, node.col_offset, tool))
            case _:
                pass
    return [tool for _, _, tool in sorted(found)]
