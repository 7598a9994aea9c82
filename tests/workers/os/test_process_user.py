"""The user of a process: real processes of other users, which try to read each other."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os import process_user
from tests.support.jobs.access_attempts import attempt
from tests.support.machines.other_users import FIRST_USER, LAST_USER

BECOMES = """
import json, os, sys
from regroup.workers.os import process_user
process_user.become(int(sys.argv[1]))
words = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
facts = {name: words[name].split() for name in ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "NoNewPrivs")}
try:
    os.setuid(0)
except PermissionError:
    facts["back"] = "refused"
facts["own"] = len(open("/proc/self/environ", "rb").read()) > 0
open("/proc/self/oom_score_adj", "w").write("1000")
print(json.dumps(facts))
"""
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""Two such processes stand for two of an unprivileged user: both have the same user id, and no capability."""
WAITS = """
import sys
from regroup.workers.os import process_user
if sys.argv[1] == "hidden":
    process_user.hide_memory()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.users
def test_a_process_that_becomes_a_user_has_no_right_left_and_cannot_return() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BECOMES, str(FIRST_USER)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["Uid"] == facts["Gid"] == [str(FIRST_USER)] * 4 and facts["Groups"] == []
    assert facts["CapPrm"] == facts["CapEff"] == ["0" * 16] and facts["NoNewPrivs"] == ["1"]
    assert facts["back"] == "refused" and facts["own"] is True


@pytest.fixture
def waiting(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process that hides its memory, or does not."""
    process = subprocess.Popen(
        [*WITHOUT_RIGHTS, sys.executable, "-c", WAITS, request.param],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process.pid
    process.communicate("")


@pytest.mark.users
@pytest.mark.parametrize(("waiting", "is_hidden"), [("hidden", True), ("open", False)], indirect=["waiting"])
def test_a_process_of_the_same_user_cannot_read_a_process_that_hides(waiting: int, is_hidden: bool) -> None:
    attempts = [("read", f"/proc/{waiting}/environ"), ("read", f"/proc/{waiting}/mem")]
    assert {attempt(*each) for each in attempts} == {"ok"}, "root with all capabilities reads both"
    code = f"from tests.support.jobs.access_attempts import attempt; print([attempt(*each) for each in {attempts!r}])"
    command = [*WITHOUT_RIGHTS, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ("ok" not in done.stdout) is is_hidden and ("PermissionError" in done.stdout) is is_hidden, done.stdout


def fake_proc(folder: Path, *, user: int = 0, rights: int = 0xFF, mapped: str = "0 0 4294967295") -> Path:
    """Write the facts that the kernel shows about a process."""
    (folder / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{rights:016x}\n")
    for name in ("uid_map", "gid_map"):
        (folder / name).write_text(f"{mapped}\n")
    return folder


def test_only_root_with_the_needed_rights_and_ids_can_switch_users(tmp_path: Path) -> None:
    def obstacle(**facts: object) -> str:
        return process_user.find_obstacle(FIRST_USER, LAST_USER, fake_proc(tmp_path, **facts))  # type: ignore[arg-type]

    assert obstacle() == ""
    assert "runs as user 1000" in obstacle(user=1000)
    assert "without the capabilities SETGID, SETUID" in obstacle(rights=0b111111)
    assert "do not exist in this container" in obstacle(mapped="0 100000 65536")
    assert obstacle(mapped="0 100000 65536\n65536 900000 300000") == ""


def test_a_path_that_other_users_cannot_open_is_found(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    file = inner / "file"
    file.write_text("x")
    for path, mode in ((tmp_path, 0o755), (outer, 0o711), (inner, 0o755), (file, 0o644)):
        path.chmod(mode)
    closed_above = {path for path in tmp_path.parents if not path.stat().st_mode & 0o001}
    assert process_user.find_closed(file) in (closed_above or {None})
    for path, closed, mode in ((outer, 0o710, 0o711), (inner, 0o700, 0o755), (file, 0o600, 0o644)):
        path.chmod(closed)
        assert process_user.find_closed(file, below=tmp_path) == path
        path.chmod(mode)
    (tmp_path / "link").symlink_to(file)
    assert process_user.find_closed(tmp_path / "link", below=tmp_path) is None
    inner.chmod(0o700)
    assert process_user.find_closed(tmp_path / "link", below=tmp_path) == inner


def test_the_real_user_of_a_process() -> None:
    assert process_user.real_user(os.getpid()) == os.getuid()
    assert process_user.real_user(2**22 + 1) is None


def test_a_program_that_starts_without_new_privileges() -> None:
    command = process_user.without_new_privileges(["/bin/grep", "NoNewPrivs", "/proc/self/status"])
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["NoNewPrivs:", "1"]
