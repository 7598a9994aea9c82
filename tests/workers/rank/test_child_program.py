"""A program that is not Python: its exit code, and signals in both directions."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regroup.api.cli.spec_input import torchrun_args
from regroup.workers.rank.child_program import MODULE


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", MODULE, *command], stderr=subprocess.PIPE)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)]
)
def test_a_rank_ends_as_its_program(script: str, code: int) -> None:
    with start("sh", "-c", script) as rank:
        assert rank.wait(30) == code


@pytest.mark.parametrize(
    ("program", "code", "reason"), [("/no/such/program", 127, b"No such file"), ("/", 126, b"Permission denied")]
)
def test_a_program_that_cannot_be_started_is_named(program: str, code: int, reason: bytes) -> None:
    with start(program) as rank:
        _, printed = rank.communicate(timeout=30)
    assert rank.returncode == code
    assert f"{program} cannot be started on this node: ".encode() + reason in printed


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    script = f"trap 'echo saved > {tmp_path}/saved; exit 5' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    with start("sh", "-c", script) as rank:
        deadline = time.monotonic() + 30
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        rank.send_signal(signal.SIGTERM)
        assert rank.wait(30) == 5
    assert (tmp_path / "saved").exists()


def test_the_command_line_names_this_module() -> None:
    assert torchrun_args._CHILD_PROGRAM == MODULE
