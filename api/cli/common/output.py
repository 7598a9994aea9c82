"""Output of the commands: JSON alone, or text and tables."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import typer


@runtime_checkable
class _Model(Protocol):
    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


_requested = {"json": False}
"""True under `json` if the command in progress was given `--json`: then its errors are JSON too."""


def note_json(value: bool) -> bool:
    """Remember that `--json` was given, and return `value`. Callback of the option."""
    _requested["json"] = _requested["json"] or value
    return value


def forget_json() -> None:
    """Begin a command that was not given `--json`."""
    _requested["json"] = False


def is_json_requested() -> bool:
    """Return True if the command in progress was given `--json`."""
    return _requested["json"]


def to_json(value: object) -> Any:
    """Convert models and records to values that JSON can represent."""
    if isinstance(value, _Model):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in cast(Sequence[object], value)]
    return value


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(to_json(value), indent=2, ensure_ascii=False))


def print_json_lines(values: Iterable[object]) -> None:
    """Print one JSON document per line, each as soon as it is available."""
    for value in values:
        print(json.dumps(to_json(value), ensure_ascii=False), flush=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print left-aligned columns, each as wide as its content, separated by two spaces."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def fit_to_terminal(line: str) -> str:
    """Return a line shortened to the terminal's width; unchanged if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else line[: width - 1] + "…"


def print_message(text: str) -> None:
    """Print a message for people on standard error, so that a pipe receives only the result."""
    print(text, file=sys.stderr)


def exit_with(code: int) -> None:
    """End with an exit code, without a message."""
    raise typer.Exit(code)
