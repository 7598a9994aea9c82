"""Users of jobs on a node: no two live jobs have the same one."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from regroup.workers.os import job_users
from regroup.workers.os.job_users import NoFreeUser
from regroup.workers.os.user_range import UserRange
from tests.support.machines.other_users import FIRST_USER

USERS = UserRange(FIRST_USER, FIRST_USER + 2)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and scratch folders of this test only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def scratch(tmp_path: Path, job: str) -> Path:
    folder = tmp_path / f"regroup-{job}-node1"
    folder.mkdir(exist_ok=True)
    return folder


def test_live_jobs_have_different_users_and_a_successor_gets_that_of_its_job(tmp_path: Path) -> None:
    folders = [scratch(tmp_path, f"job_{number}") for number in range(3)]
    users = [job_users.reserve(USERS, f"job_{number}", folder) for number, folder in enumerate(folders)]
    assert sorted(users) == list(range(USERS.first, USERS.last + 1))
    assert [job_users.reserve(USERS, f"job_{number}", folder) for number, folder in enumerate(folders)] == users
    assert [job_users.find(folder) for folder in folders] == users
    assert job_users.find(tmp_path / "regroup-job_9-node1") is None


def test_a_full_range_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    for number in range(3):
        job_users.reserve(USERS, f"job_{number}", scratch(tmp_path, f"job_{number}"))
    with pytest.raises(NoFreeUser, match="set REGROUP_RANK_USERS to a larger range"):
        job_users.reserve(USERS, "job_9", scratch(tmp_path, "job_9"))


def test_a_user_is_free_when_the_folder_of_its_job_is_gone(tmp_path: Path) -> None:
    one = UserRange(FIRST_USER, FIRST_USER)
    first = scratch(tmp_path, "job_1")
    job_users.reserve(one, "job_1", first)
    with pytest.raises(NoFreeUser):
        job_users.reserve(one, "job_2", scratch(tmp_path, "job_2"))
    first.rmdir()
    assert job_users.reserve(one, "job_2", scratch(tmp_path, "job_2")) == FIRST_USER
    assert job_users.find(first) is None


@pytest.mark.users
def test_a_user_with_a_live_process_is_not_free(tmp_path: Path) -> None:
    one = UserRange(FIRST_USER, FIRST_USER)
    process = subprocess.Popen(["sleep", "1000"], user=FIRST_USER, group=FIRST_USER, extra_groups=[])
    try:
        with pytest.raises(NoFreeUser):
            job_users.reserve(one, "job_1", scratch(tmp_path, "job_1"))
    finally:
        process.kill()
        process.wait()
    assert job_users.reserve(one, "job_1", scratch(tmp_path, "job_1")) == FIRST_USER


def test_jobs_that_start_at_once_have_different_users(tmp_path: Path) -> None:
    code = """
import sys, tempfile
from pathlib import Path
tempfile.tempdir = sys.argv[1]
from regroup.workers.os.user_range import UserRange
from regroup.workers.os import job_users
print(job_users.reserve(UserRange(int(sys.argv[2]), int(sys.argv[2]) + 2), sys.argv[3], Path(sys.argv[4])))
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(FIRST_USER), job, str(scratch(tmp_path, job))],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        for job in ("job_1", "job_2", "job_3")
    ]
    users = [int(process.communicate(timeout=60)[0]) for process in started]
    assert sorted(users) == list(range(USERS.first, USERS.last + 1))


@pytest.mark.users
def test_records_that_another_user_made_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"regroup-users-{os.geteuid()}"
    folder.mkdir()
    (folder / str(FIRST_USER)).write_text("regroup-job_1-node1")
    os.chown(folder, FIRST_USER, FIRST_USER)
    assert job_users.find(scratch(tmp_path, "job_1")) is None
    with pytest.raises(NoFreeUser, match="belongs to another user"):
        job_users.reserve(USERS, "job_1", scratch(tmp_path, "job_1"))
