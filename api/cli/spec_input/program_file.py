"""Checks that a program exists before it is submitted."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from regroup.service.domain.errors import FieldIssue, SpecError

_RUNS_A_FILE = ("script", "ray_train")


def check_program(program: str, cwd: Path) -> None:
    """Check the program of a command line, as Python would before it runs it.

    Raises:
        BadParameter: the file does not exist, or is a folder without `__main__.py`.
    """
    path = Path(os.path.normpath(cwd / program))
    if path.is_file() or (path / "__main__.py").is_file():
        return
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder without __main__.py; give a Python file, or a module with -m")
    similar = difflib.get_close_matches(path.name, _names(path.parent), 1)
    hint = f" (did you mean {similar[0]}?)" if similar else ""
    raise typer.BadParameter(
        f"no file {path} on this machine{hint}; to run a file that only the nodes have, name it in a spec file"
    )


def check_command(command: str, cwd: Path) -> None:
    """Check a command that is not Python, if it is a path. The nodes search their own `PATH` for any other.

    Raises:
        BadParameter: the file does not exist, or is not executable.
    """
    path = Path(os.path.normpath(cwd / command))
    if "/" not in command:
        return
    if not path.is_file():
        raise typer.BadParameter(f"no file {path} on this machine; run a file that only the nodes have with sh -c")
    if not os.access(path, os.X_OK):
        raise typer.BadParameter(f"{path} is not executable; use chmod +x, or name the program that runs it")


def check_sent_entrypoint(spec: Mapping[str, Any]) -> None:
    """Check that a spec's entrypoint is in the folder that the spec sends to the nodes.

    Args:
        spec: the spec, with the path of the folder in `code.working_dir`.

    Raises:
        SpecError: the folder does not contain the file.
    """
    workload: Any = spec.get("workload")
    code: Any = spec.get("code")
    if not isinstance(workload, Mapping) or not isinstance(code, Mapping) or "working_dir" not in code:
        return
    entrypoint = workload.get("entrypoint")
    if workload.get("kind") not in _RUNS_A_FILE or not isinstance(entrypoint, str) or Path(entrypoint).is_absolute():
        return
    cwd = str(workload.get("cwd") or "")
    folder = Path(str(code["working_dir"]))
    if not folder.is_dir() or Path(cwd).is_absolute() or (folder / cwd / entrypoint).exists():
        return
    message = f"is not in the folder that is sent to the nodes, {folder / cwd}"
    raise SpecError([FieldIssue("workload.entrypoint", message, entrypoint)])


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
