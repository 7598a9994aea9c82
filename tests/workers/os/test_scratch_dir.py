"""Removal of unused job folders from a node."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os import scratch_dir


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder that an agent made long ago and has not cleared."""
    folder = tmp_path / "regroup-job_1-aaaaaaaa"
    (folder / "rank0").mkdir(parents=True)
    (folder / "rank0" / "log").write_text("begun\n")
    os.utime(folder, (0, 0))
    return folder


def test_an_unlocked_folder_is_removed(old: Path, tmp_path: Path) -> None:
    (tmp_path / "regroup-other").mkdir()
    assert scratch_dir.sweep(tmp_path) == [old]
    assert [path.name for path in tmp_path.iterdir()] == ["regroup-other"]
    assert scratch_dir.sweep(tmp_path) == []


def test_an_agent_keeps_its_folder_until_its_process_ends(old: Path, tmp_path: Path) -> None:
    descriptor = scratch_dir.lock(old)
    assert scratch_dir.sweep(tmp_path) == [] and (old / "rank0" / "log").exists()
    os.close(descriptor)
    assert scratch_dir.sweep(tmp_path) == [old]


def test_a_remaining_process_keeps_the_folder(old: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=old, stdin=subprocess.PIPE) as left:
        assert scratch_dir.sweep(tmp_path) == []
        left.communicate(b"\n")
    assert scratch_dir.sweep(tmp_path) == [old]


def test_a_folder_that_is_being_created_stays(old: Path, tmp_path: Path) -> None:
    os.utime(old)
    assert scratch_dir.sweep(tmp_path) == [] and old.exists()


def test_a_folder_that_is_recreated_during_the_check_stays(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the successor of a killed agent at the moment of a sweep."""
    locks: list[int] = []

    def recreate(folder: Path) -> bool:
        locks.append(scratch_dir.make(folder))
        return False

    monkeypatch.setattr(scratch_dir.orphans, "in_use", recreate)
    assert scratch_dir.sweep(old.parent) == [] and old.exists()
    assert list(old.iterdir()) == []
    os.close(locks[0])


def test_the_process_that_locks_a_folder_is_found(old: Path, tmp_path: Path) -> None:
    assert scratch_dir.holders(tmp_path) == {}
    with locking(old) as holder:
        assert scratch_dir.holders(tmp_path) == {holder.pid: old}
    assert scratch_dir.holders(tmp_path) == {}


def test_a_stopped_predecessor_is_killed_and_its_folder_replaced(old: Path) -> None:
    with locking(old) as holder:
        holder.send_signal(signal.SIGSTOP)
        descriptor = scratch_dir.make(old)
        assert holder.wait(10) == -signal.SIGKILL
        assert list(old.iterdir()) == []
        os.close(descriptor)


@contextlib.contextmanager
def locking(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that locks a folder."""
    code = "import sys; from pathlib import Path; from regroup.workers.os import scratch_dir; "
    code += "fd = scratch_dir.lock(Path(sys.argv[1])); print('ready', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
