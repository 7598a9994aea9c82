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
        [sys.executable, "-c", WAITS, request.param], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process.pid
    process.communicate("")


@pytest.mark.users
@pytest.mark.parametrize(("waiting", "is_hidden"), [("hidden", True), ("open", False)], indirect=["waiting"])
def test_a_process_of_the_same_user_cannot_read_a_process_that_hides(waiting: int, is_hidden: bool) -> None:
    # A child without CAP_SYS_PTRACE stands for another process of an unprivileged user: both have the same user id.
    attempts = [("read", f"/proc/{waiting}/environ"), ("read", f"/proc/{waiting}/mem"), ("list", f"/proc/{waiting}/fd")]
    assert {attempt(*each) for each in attempts} == {"ok"}, "root with all capabilities reads both"
    code = f"from tests.support.jobs.access_attempts import attempt; print([attempt(*each) for each in {attempts!r}])"
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
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


def test_the_real_user_of_a_process() -> None:
    assert process_user.real_user(os.getpid()) == os.getuid()
    assert process_user.real_user(2**22 + 1) is None


def test_a_program_that_starts_without_new_privileges() -> None:
    command = process_user.without_new_privileges(["/bin/grep", "NoNewPrivs", "/proc/self/status"])
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["NoNewPrivs:", "1"]
