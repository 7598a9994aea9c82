"""A zygote that the operating system refuses to start: real starts with real limits."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regroup.workers.os.start_errors import StartError
from regroup.workers.zygote.client import ZygoteLink
from regroup.workers.zygote.launch import Launch


def not_executable(folder: Path) -> str:
    (folder / "python").write_text("#!/bin/sh\n")
    return str(folder / "python")


def of_another_machine(folder: Path) -> str:
    program = folder / "python"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"A=B": "1"}, "illegal environment variable name"),
        ({"A": "x" * 140_000}, "too large for the operating system"),
        ({f"A{number}": "x" * 100_000 for number in range(100)}, "too large for the operating system"),
        ({"A": "a\0b"}, "embedded null byte"),
    ],
)
def test_an_impossible_environment_is_an_error_of_the_spec(
    environment: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match=words) as raised:
        ZygoteLink.start(sys.executable, {**os.environ, **environment}, tmp_path / "log", tmp_path)
    assert not raised.value.is_of_node and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda folder: str(folder / "missing"), "it does not exist there"),
        (not_executable, "it cannot be executed there"),
        (of_another_machine, "it is not a program for this machine"),
        (lambda folder: str(folder / "log" / "python"), "a part of its path is not a folder"),
    ],
)
def test_a_python_that_cannot_run_is_an_error_of_the_spec(
    program: Callable[[Path], str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(StartError, match=words) as raised:
        ZygoteLink.start(program(tmp_path), os.environ, tmp_path / "log", tmp_path)
    assert not raised.value.is_of_node and str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(("log", "cwd"), [("no/log", ""), ("log", "no")])
def test_missing_folders_of_the_node_are_an_error_of_the_node(log: str, cwd: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file or directory") as raised:
        ZygoteLink.start(sys.executable, os.environ, tmp_path / log, tmp_path / cwd)
    assert raised.value.is_of_node


async def test_a_request_that_is_too_large_for_a_packet_is_an_error_of_the_spec(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    link = ZygoteLink.start(sys.executable, environment, tmp_path / "log", tmp_path)
    with pytest.raises(StartError, match="shorten args, env or preload") as raised:
        link.fork(Launch("task", "m:f", {"text": "x" * 200_000}))
    assert not raised.value.is_of_node
    link.prepare([], {})
    await link.ready()
    link.close()
    link.process.wait()
