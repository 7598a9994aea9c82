"""Files that an agent shares with a job's user, who may replace them by links."""

import os
from pathlib import Path

import pytest

from regroup.workers.os import job_files
from regroup.workers.os.job_files import UnsafeFile
from tests.support.machines.other_users import FIRST_USER

pytestmark = pytest.mark.users


def of_job(path: Path) -> Path:
    os.chown(path, FIRST_USER, FIRST_USER, follow_symlinks=False)
    return path


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_a_folder_is_given_and_reclaimed_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_text("x")
    job_files.assign_tree(folder, FIRST_USER)
    assert owners(folder) == {FIRST_USER}
    folder.chmod(0o777)
    job_files.reclaim_tree(folder, FIRST_USER)
    assert owners(folder) == {os.geteuid()} and folder.stat().st_mode & 0o777 == 0o700


def test_without_a_user_nothing_changes(tmp_path: Path) -> None:
    of_job(tmp_path)
    job_files.assign_tree(tmp_path, None)
    job_files.reclaim_tree(tmp_path, None)
    job_files.assign_file(tmp_path / "file", None)
    assert owners(tmp_path) == {FIRST_USER}


@pytest.mark.parametrize("kind", ["link", "link to a folder", "second name", "pipe", "file of another user"])
def test_a_file_that_leads_elsewhere_is_not_read(tmp_path: Path, kind: str) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "saved"
    secret.write_text("of the platform")
    folder.mkdir()
    entry = folder / "shard"
    match kind:
        case "link":
            entry.symlink_to(secret)
        case "link to a folder":
            entry.symlink_to(tmp_path)
        case "second name":
            entry.hardlink_to(of_job(secret))
        case "pipe":
            os.mkfifo(entry)
        case _:
            entry.write_text("x")
            os.chown(entry, FIRST_USER + 1, FIRST_USER + 1)
    if kind != "file of another user":
        of_job(entry)
    of_job(folder)
    with pytest.raises(UnsafeFile, match="is not a regular file of the job's user"):
        job_files.reclaim_tree(folder, FIRST_USER)


def test_a_file_is_not_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "stacks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="stacks"):
        job_files.assign_file(tmp_path / "stacks", FIRST_USER)
    assert not (tmp_path / "elsewhere").exists()
