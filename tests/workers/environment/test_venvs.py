"""Environments by hash: created once, awaited, created again if incomplete, removed only while unused."""

import os
import threading
import time
from pathlib import Path

import pytest

from regroup.workers.environment import venvs
from regroup.workers.environment.uv_command import cache_of, clear_cache
from tests.support.servers.regroup_server import eventually


def create(path: Path) -> None:
    """Create a small environment."""
    path.mkdir()
    (path / "content").write_bytes(b"x" * 10_000)


def fail(path: Path) -> None:
    """Fail: the environment must exist already."""
    raise AssertionError(f"{path} is created again")


def test_the_name_does_not_depend_on_order_and_spelling() -> None:
    one = venvs.key_of(["Some_Lib==1.0", "other >= 2"], "none", {})
    assert one == venvs.key_of(["other>=2", "some-lib==1.0", "other>=2"], "none", {})


def test_the_name_depends_on_versions_base_and_index() -> None:
    keys = [
        venvs.key_of(["lib==1.0"], "none", {}),
        venvs.key_of(["lib==1.1"], "none", {}),
        venvs.key_of(["lib==1.0"], "platform", {}),
        venvs.key_of(["lib==1.0"], "none", {"PIP_INDEX_URL": "https://elsewhere"}),
    ]
    assert len(set(keys)) == len(keys)


def test_an_environment_is_created_once_and_found_again(tmp_path: Path) -> None:
    venvs.acquire(tmp_path, "key", create).release()
    again = venvs.acquire(tmp_path, "key", fail)
    assert (again.path / "content").exists()
    assert again.python == str(tmp_path / "key" / "bin" / "python")
    again.release()


def test_a_failed_creation_leaves_nothing_and_is_retried(tmp_path: Path) -> None:
    def fail_half_way(path: Path) -> None:
        create(path)
        raise ValueError("disk")

    with pytest.raises(ValueError, match="disk"):
        venvs.acquire(tmp_path, "key", fail_half_way)
    assert not (tmp_path / "key").exists()
    venvs.acquire(tmp_path, "key", create).release()


def test_an_incomplete_environment_of_a_dead_agent_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "half").touch()
    venv = venvs.acquire(tmp_path, "key", create)
    assert not (venv.path / "half").exists()
    venv.release()


def test_a_second_agent_waits_for_the_first_and_shares_its_environment(tmp_path: Path) -> None:
    resume, waited = threading.Event(), threading.Event()

    def create_slowly(path: Path) -> None:
        assert resume.wait(30)
        create(path)

    acquired: list[venvs.SharedVenv] = []
    creator = threading.Thread(target=lambda: acquired.append(venvs.acquire(tmp_path, "key", create_slowly)))
    creator.start()
    eventually(lambda: (tmp_path / "key.lock").exists() and _is_locked(tmp_path / "key.lock"), 10)
    waiter = threading.Thread(target=lambda: acquired.append(venvs.acquire(tmp_path, "key", fail, on_wait=waited.set)))
    waiter.start()
    assert waited.wait(30)
    resume.set()
    creator.join(30)
    waiter.join(30)
    assert len(acquired) == 2
    for venv in acquired:
        venv.release()


def test_a_wait_can_be_stopped(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(venvs.InstallStopped):
            venvs.acquire(tmp_path, "key", fail, is_stopped=lambda: True)


def test_the_least_recently_used_environment_is_removed_first(tmp_path: Path) -> None:
    now_s = time.time()
    used = venvs.acquire(tmp_path, "used", create)
    for number, name in enumerate(("oldest", "older", "newest")):
        venvs.acquire(tmp_path, name, create).release()
        _set_last_use(tmp_path / name, now_s - 1000 + number)
    _set_last_use(tmp_path / "used", now_s - 2000)
    (tmp_path / "incomplete").mkdir()
    size = _size_bytes(tmp_path / "used")
    assert venvs.evict(tmp_path, 2 * size, now_s) == ["incomplete", "oldest", "older"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used", "newest"}
    used.release()
    _set_last_use(tmp_path / "used", now_s - 2000)
    assert venvs.evict(tmp_path, size, now_s) == ["used"]


def test_the_cache_of_uv_is_removed_before_environments(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    (cache / "archive-v0").mkdir(parents=True)
    (cache / "archive-v0" / "file").write_bytes(b"x" * 100_000)
    venvs.acquire(tmp_path, "key", create).release()
    size = _size_bytes(tmp_path / "key")
    assert venvs.evict(tmp_path, size + 200_000, time.time()) == [] and cache.exists()
    assert venvs.evict(tmp_path, size + 50_000, time.time()) == [] and not (cache / "archive-v0").exists()
    assert venvs.evict(tmp_path, size - 1, time.time()) == ["key"]


def test_a_cache_in_use_stays(tmp_path: Path) -> None:
    import fcntl

    cache = cache_of(tmp_path)
    cache.mkdir()
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert not clear_cache(cache)
    assert clear_cache(cache)


def test_an_environment_unused_for_a_week_is_removed_in_any_case(tmp_path: Path) -> None:
    venvs.acquire(tmp_path, "key", create).release()
    assert venvs.evict(tmp_path, 10**12, time.time() + 6 * 86400) == []
    assert venvs.evict(tmp_path, 10**12, time.time() + 8 * 86400) == ["key"]


def test_a_linked_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv(venvs.FOLDER_VARIABLE, str(tmp_path / "link"))
    with pytest.raises(venvs.VenvError, match=venvs.FOLDER_VARIABLE):
        venvs.node_folder()


def _is_locked(path: Path) -> bool:
    import fcntl

    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _set_last_use(path: Path, time_s: float) -> None:
    os.utime(path / "regroup.json", (time_s, time_s))


def _size_bytes(path: Path) -> int:
    import json

    return int(json.loads((path / "regroup.json").read_text())["bytes"])
