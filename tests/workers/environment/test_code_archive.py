"""A job's code on a node: fetched by its address, verified, and never written outside its folder."""

import hashlib
import os
import shutil
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from regroup.api.client.operations.code_archive import pack
from regroup.workers.contract.archive_rules import ArchiveLimits
from regroup.workers.environment import code_archive
from regroup.workers.environment.code_archive import CodeError, fetch, unpack
from tests.support.inputs.archives import FILE, FOLDER, LINK, Member, bomb, tar_of_members, tar_with_extended_header
from tests.support.inputs.damaged_archives import damaged_archives
from tests.support.inputs.fuzz import fuzz_settings


class Blobs:
    """A blob store in a folder, and a node's cache."""

    def __init__(self, root: Path) -> None:
        self.folder, self.cache, self.uri = root / "blobs" / "sha256", root / "cache", (root / "blobs").as_uri()
        self.folder.mkdir(parents=True)
        self.cache.mkdir()

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / digest).write_bytes(data)
        return f"sha256:{digest}"

    def put_members(self, *members: Member) -> str:
        return self.put(tar_of_members(members))


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path)


@pytest.fixture
def archive(blobs: Blobs, tmp_path: Path) -> str:
    tree = tmp_path / "project"
    (tree / "package").mkdir(parents=True)
    (tree / "package" / "__init__.py").write_text("x = 1\n")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("package")
    return blobs.put(pack(tree, tmp_path / "code.tar").file.read_bytes())


def test_unpacked_code_equals_the_packed_code(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    directory = unpack(archive, blobs.uri, blobs.cache, tmp_path / "job" / "code")
    assert (directory / "link" / "__init__.py").read_text() == "x = 1\n"
    assert os.access(directory / "run.sh", os.X_OK) and not os.access(directory / "package" / "__init__.py", os.X_OK)
    assert os.access(directory / "package", os.W_OK), "ranks write where they run"
    assert sorted(path.name for path in directory.parent.iterdir()) == ["code"]


def test_code_is_fetched_once_per_node_and_unpacked_once_per_job(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    first = unpack(archive, blobs.uri, blobs.cache, tmp_path / "one")
    (first / "result").touch()
    (blobs.folder / archive.removeprefix("sha256:")).unlink()
    assert unpack(archive, blobs.uri, blobs.cache, tmp_path / "one") == first
    assert (first / "result").exists(), "the folder stays as it is"
    assert not (unpack(archive, blobs.uri, blobs.cache, tmp_path / "two") / "result").exists()


def test_two_simultaneous_calls_return_the_same_folder(
    blobs: Blobs, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = code_archive._refuse_links_outside
    target = tmp_path / "job"

    def finish_second(*arguments: Any) -> None:
        monkeypatch.setattr(code_archive, "_refuse_links_outside", check)
        unpack(archive, blobs.uri, blobs.cache, target)  # the other call ends first
        check(*arguments)

    monkeypatch.setattr(code_archive, "_refuse_links_outside", finish_second)
    assert unpack(archive, blobs.uri, blobs.cache, target) == target
    assert sorted(path.name for path in target.iterdir()) == ["link", "package", "run.sh"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("job")] == ["job"], "drafts are gone"


def test_an_altered_archive_in_the_cache_is_fetched_again(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    fetch(archive, blobs.uri, blobs.cache).write_bytes(b"altered")
    assert (unpack(archive, blobs.uri, blobs.cache, tmp_path / "job") / "run.sh").exists()


def test_an_archive_unused_for_a_week_leaves_the_cache(blobs: Blobs, archive: str) -> None:
    old, recent = blobs.put(b"old"), blobs.put(b"recent")
    for address, days in ((old, 8), (recent, 6)):
        file = fetch(address, blobs.uri, blobs.cache)
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - days * 86400))
    (blobs.cache / "half.fetched").touch()
    os.utime(blobs.cache / "half.fetched", (1, 1))
    fetch(archive, blobs.uri, blobs.cache)
    assert {f"sha256:{file.name}" for file in blobs.cache.iterdir()} == {archive, recent}


def test_the_longest_unused_archives_leave_a_cache_that_is_too_large(blobs: Blobs) -> None:
    for number, unused_s in enumerate((3000, 7200, 5000, 10)):
        file = blobs.cache / f"{number}"
        file.write_bytes(bytes(1000))
        os.utime(file, (time.time() - unused_s,) * 2)
    code_archive._remove_old(blobs.cache, 2500)
    assert sorted(path.name for path in blobs.cache.iterdir()) == ["0", "3"]
    code_archive._remove_old(blobs.cache, 10)
    assert [path.name for path in blobs.cache.iterdir()] == ["3"], "another agent may open it now"


def test_many_agents_of_a_node_can_fetch_at_the_same_time(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    done: list[Path] = []

    def prepare(number: int) -> None:
        done.append(unpack(archive, blobs.uri, blobs.cache, tmp_path / f"job{number}"))

    threads = [threading.Thread(target=prepare, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all((directory / "run.sh").exists() for directory in done) and len(done) == 8
    assert [file.name for file in blobs.cache.iterdir()] == [archive.removeprefix("sha256:")]


def test_an_archive_that_does_not_match_its_address_is_refused(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    (blobs.folder / archive.removeprefix("sha256:")).write_bytes(b"altered")
    with pytest.raises(CodeError, match=r"is damaged in file:.*node .* received data with sha256"):
        unpack(archive, blobs.uri, blobs.cache, tmp_path / "job")
    assert list(blobs.cache.iterdir()) == [] and not (tmp_path / "job").exists()


def test_an_unreadable_blob_store_is_named_with_the_remedy(blobs: Blobs, tmp_path: Path) -> None:
    absent = "sha256:" + "0" * 64
    uri = (tmp_path / "elsewhere").as_uri()
    with pytest.raises(
        CodeError, match=rf"node .* does not find .*{uri}/sha256/0+: start the server with a --blob-uri"
    ):
        unpack(absent, uri, blobs.cache, tmp_path / "job")
    with pytest.raises(CodeError, match="cannot read the job's code at no-such-scheme:"):
        unpack(absent, "no-such-scheme://bucket", blobs.cache, tmp_path / "job")
    with pytest.raises(CodeError, match="is not a content address"):
        unpack("../../etc/passwd", uri, blobs.cache, tmp_path / "job")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("/tmp/x", FILE, "")], "is outside"),
        ([("../x", FILE, "")], "is outside"),
        ([("a/../../x", FILE, "")], "is outside"),
        ([("out", LINK, "/etc")], "outside the archive"),
        ([("a/out", LINK, "../../etc")], "outside the archive"),
        ([("out", LINK, "."), ("out/x", FILE, "")], "is below 'out'"),
        ([("x/y", FILE, ""), ("x", LINK, ".")], "is below 'x'"),
        ([("x", LINK, "y"), ("x", FILE, "")], "is listed twice"),
        ([("x", LINK, "y"), ("./x", FILE, "")], "is listed twice"),
        ([("x", tarfile.LNKTYPE, "/etc/passwd")], "is not a file"),
        ([("x", tarfile.FIFOTYPE, "")], "is not a file"),
        ([("x", tarfile.CHRTYPE, "")], "is not a file"),
        ([("s", FOLDER, ""), ("p/q/l", LINK, "../../s"), ("out", LINK, "p/q/l/../../z")], "outside"),
        (
            [("s", FOLDER, ""), ("out", LINK, "p/q/l/../../z"), ("p/q/l", LINK, "../../s")],
            "outside the archive through other links",
        ),
    ],
)
def test_members_that_could_be_written_outside_are_refused(
    blobs: Blobs, tmp_path: Path, members: list[Member], reason: str
) -> None:
    inside = tmp_path / "jobs" / "job"
    inside.parent.mkdir()
    with pytest.raises(CodeError, match=reason):
        unpack(blobs.put_members(*members), blobs.uri, blobs.cache, inside)
    assert list(inside.parent.iterdir()) == []


def test_a_file_other_than_an_archive_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(CodeError, match="is refused: it is not a tar archive"):
        unpack(blobs.put(b"not a tar file"), blobs.uri, blobs.cache, tmp_path / "job")


def test_a_bomb_is_refused_on_the_node_before_anything_is_written(blobs: Blobs, tmp_path: Path) -> None:
    inside = tmp_path / "jobs" / "job"
    inside.parent.mkdir()
    archive = blobs.put(bomb(2**28))
    with pytest.raises(CodeError, match=r"is refused: it unpacks to more than the limit of 200\.0 MiB"):
        unpack(archive, blobs.uri, blobs.cache, inside)
    assert list(inside.parent.iterdir()) == []
    small, limits = blobs.put(bomb(2**22)), ArchiveLimits(unpacked_bytes=2**22)
    assert (unpack(small, blobs.uri, blobs.cache, inside, limits) / "zeros").stat().st_size == 2**22


def test_an_archive_above_the_limit_is_not_fetched_to_its_end(blobs: Blobs, tmp_path: Path) -> None:
    limits = ArchiveLimits(unpacked_bytes=1000, members=1)
    with pytest.raises(CodeError, match=r"has more than 5096 bytes, the limit"):
        unpack(blobs.put(bytes(10_000)), blobs.uri, blobs.cache, tmp_path / "job", limits)
    assert list(blobs.cache.iterdir()) == []


def test_a_linked_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (
        code_archive.node_cache() == code_archive.node_cache()
        and code_archive.node_cache().stat().st_mode & 0o777 == 0o700
    )
    code_archive.node_cache().rename(tmp_path / "elsewhere")
    (tmp_path / f"regroup-code-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CodeError, match="belongs to another user"):
        code_archive.node_cache()


def test_an_empty_archive_gives_an_empty_folder(blobs: Blobs, tmp_path: Path) -> None:
    assert list(unpack(blobs.put_members(), blobs.uri, blobs.cache, tmp_path / "job").iterdir()) == []


@pytest.mark.fuzz
@fuzz_settings(40)
@given(data=damaged_archives())
@example(data=tar_with_extended_header(path="a\0b"))
@example(data=tar_with_extended_header(linkpath="a\0b"))
@example(data=tar_with_extended_header(mtime="1e300"))
def test_any_archive_is_unpacked_whole_or_refused_as_code(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.mktemp("node")
    blobs, inside = Blobs(root), root / "jobs" / "job"
    inside.parent.mkdir()
    began = time.process_time()
    try:
        unpack(blobs.put(data), blobs.uri, blobs.cache, inside, ArchiveLimits(unpacked_bytes=100_000, members=20))
    except CodeError as error:
        assert str(error)
        assert list(inside.parent.iterdir()) == [], "nothing remains of a refused archive"
    assert time.process_time() - began < 5
    assert {path.name for path in inside.parent.iterdir()} <= {"job"}
    shutil.rmtree(root)
