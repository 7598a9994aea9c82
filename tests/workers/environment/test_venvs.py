"""Environments by hash: made once, waited for, redone when torn, removed only when nobody uses them."""

import os
import threading
import time
from pathlib import Path

import pytest

from regroup.workers.environment import venvs
from tests.support.servers.regroup_server import eventually


def made(path: Path) -> None:
    """The smallest environment there is."""
    path.mkdir()
    (path / "content").write_bytes(b"x" * 10_000)


def never(path: Path) -> None:
    """It must be there."""
    raise AssertionError(f"{path} is made again")


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


def test_an_environment_is_made_once_and_found_again(tmp_path: Path) -> None:
    venvs.hold(tmp_path, "key", made).release()
    again = venvs.hold(tmp_path, "key", never)
    assert (again.path / "content").exists()
    assert again.python == str(tmp_path / "key" / "bin" / "python")
    again.release()


def test_what_could_not_be_made_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        made(path)
        raise ValueError("disk")

    with pytest.raises(ValueError, match="disk"):
        venvs.hold(tmp_path, "key", fails)
    assert not (tmp_path / "key").exists()
    venvs.hold(tmp_path, "key", made).release()


def test_what_a_dead_agent_left_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "half").touch()
    hold = venvs.hold(tmp_path, "key", made)
    assert not (hold.path / "half").exists()
    hold.release()


def test_another_waits_while_one_makes_it_and_then_uses_the_same(tmp_path: Path) -> None:
    go_on, waited = threading.Event(), threading.Event()

    def slowly(path: Path) -> None:
        assert go_on.wait(30)
        made(path)

    holds: list[venvs.Hold] = []
    maker = threading.Thread(target=lambda: holds.append(venvs.hold(tmp_path, "key", slowly)))
    maker.start()
    eventually(lambda: (tmp_path / "key.lock").exists() and _is_held(tmp_path / "key.lock"), 10)
    waiter = threading.Thread(target=lambda: holds.append(venvs.hold(tmp_path, "key", never, on_wait=waited.set)))
    waiter.start()
    assert waited.wait(30)
    go_on.set()
    maker.join(30)
    waiter.join(30)
    assert len(holds) == 2
    for hold in holds:
        hold.release()


def test_who_waits_can_be_stopped(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "key.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(venvs.Stopped):
            venvs.hold(tmp_path, "key", never, is_stopped=lambda: True)


def test_the_longest_unused_goes_first_and_nothing_in_use(tmp_path: Path) -> None:
    now_s = time.time()
    used = venvs.hold(tmp_path, "used", made)
    for number, name in enumerate(("oldest", "older", "newest")):
        venvs.hold(tmp_path, name, made).release()
        _touched(tmp_path / name, now_s - 1000 + number)
    _touched(tmp_path / "used", now_s - 2000)
    (tmp_path / "torn").mkdir()
    size = _size(tmp_path / "used")
    assert venvs.tidy(tmp_path, 2 * size, now_s) == ["torn", "oldest", "older"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used", "newest"}
    used.release()
    _touched(tmp_path / "used", now_s - 2000)
    assert venvs.tidy(tmp_path, size, now_s) == ["used"]


def test_what_nobody_used_for_a_week_goes_however_much_room_there_is(tmp_path: Path) -> None:
    venvs.hold(tmp_path, "key", made).release()
    assert venvs.tidy(tmp_path, 10**12, time.time() + 6 * 86400) == []
    assert venvs.tidy(tmp_path, 10**12, time.time() + 8 * 86400) == ["key"]


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv(venvs.FOLDER_VARIABLE, str(tmp_path / "link"))
    with pytest.raises(venvs.VenvError, match=venvs.FOLDER_VARIABLE):
        venvs.node_folder()


def _is_held(path: Path) -> bool:
    import fcntl

    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _touched(path: Path, time_s: float) -> None:
    os.utime(path / "regroup.json", (time_s, time_s))


def _size(path: Path) -> int:
    import json

    return int(json.loads((path / "regroup.json").read_text())["bytes"])
