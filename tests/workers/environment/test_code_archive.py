"""A job's code on a node: had by its address, verified, and never written outside its folder."""

import hashlib
import io
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.code_archive import pack
from regroup.workers.environment import code_archive
from regroup.workers.environment.code_archive import CodeError, fetched, unpacked

Member = tuple[str, bytes, str]
"""Name, tar's type, target of a link."""


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
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, kind, target in members:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, target
                member.size = 3 if kind == tarfile.REGTYPE else 0
                tar.addfile(member, io.BytesIO(b"abc"))
        return self.put(buffer.getvalue())


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


def test_code_arrives_as_it_was(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    directory = unpacked(archive, blobs.uri, blobs.cache, tmp_path / "job" / "code")
    assert (directory / "link" / "__init__.py").read_text() == "x = 1\n"
    assert os.access(directory / "run.sh", os.X_OK) and not os.access(directory / "package" / "__init__.py", os.X_OK)
    assert os.access(directory / "package", os.W_OK), "ranks write where they run"
    assert sorted(path.name for path in directory.parent.iterdir()) == ["code"]


def test_code_is_fetched_once_a_node_and_unpacked_once_a_job(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    first = unpacked(archive, blobs.uri, blobs.cache, tmp_path / "one")
    (first / "result").touch()
    (blobs.folder / archive.removeprefix("sha256:")).unlink()
    assert unpacked(archive, blobs.uri, blobs.cache, tmp_path / "one") == first
    assert (first / "result").exists(), "it was there"
    assert not (unpacked(archive, blobs.uri, blobs.cache, tmp_path / "two") / "result").exists()


def test_two_calls_that_unpack_the_same_at_once_both_find_it(
    blobs: Blobs, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = code_archive._refuse_links_outside
    target = tmp_path / "job"

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(code_archive, "_refuse_links_outside", checked)
        unpacked(archive, blobs.uri, blobs.cache, target)  # the other call comes to its end first
        checked(*given)

    monkeypatch.setattr(code_archive, "_refuse_links_outside", overtaken)
    assert unpacked(archive, blobs.uri, blobs.cache, target) == target
    assert sorted(path.name for path in target.iterdir()) == ["link", "package", "run.sh"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("job")] == ["job"], "drafts are gone"


def test_an_archive_of_the_cache_that_was_altered_is_fetched_again(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    fetched(archive, blobs.uri, blobs.cache).write_bytes(b"altered")
    assert (unpacked(archive, blobs.uri, blobs.cache, tmp_path / "job") / "run.sh").exists()


def test_what_nobody_fetched_for_a_week_leaves_the_cache(blobs: Blobs, archive: str) -> None:
    old, recent = blobs.put(b"old"), blobs.put(b"recent")
    for address, days in ((old, 8), (recent, 6)):
        file = fetched(address, blobs.uri, blobs.cache)
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - days * 86400))
    (blobs.cache / "half.fetched").touch()
    os.utime(blobs.cache / "half.fetched", (1, 1))
    fetched(archive, blobs.uri, blobs.cache)
    kept = {archive, recent}
    assert {f"sha256:{file.name}" for file in blobs.cache.iterdir()} == kept


def test_many_agents_of_a_node_fetch_at_once(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    done: list[Path] = []

    def fetch(number: int) -> None:
        done.append(unpacked(archive, blobs.uri, blobs.cache, tmp_path / f"job{number}"))

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all((directory / "run.sh").exists() for directory in done) and len(done) == 8
    assert [file.name for file in blobs.cache.iterdir()] == [archive.removeprefix("sha256:")]


def test_an_archive_that_is_not_what_its_address_says_is_refused(blobs: Blobs, archive: str, tmp_path: Path) -> None:
    (blobs.folder / archive.removeprefix("sha256:")).write_bytes(b"altered")
    with pytest.raises(CodeError, match=r"is damaged in file:.*what node .* got has sha256"):
        unpacked(archive, blobs.uri, blobs.cache, tmp_path / "job")
    assert list(blobs.cache.iterdir()) == [] and not (tmp_path / "job").exists()


def test_a_blob_store_that_the_node_does_not_see_is_named_with_what_to_do(blobs: Blobs, tmp_path: Path) -> None:
    absent = "sha256:" + "0" * 64
    uri = (tmp_path / "elsewhere").as_uri()
    with pytest.raises(CodeError, match=rf"node .* does not see .*{uri}/sha256/0+: start the server with a --blob-uri"):
        unpacked(absent, uri, blobs.cache, tmp_path / "job")
    with pytest.raises(CodeError, match="cannot read the job's code at no-such-scheme:"):
        unpacked(absent, "no-such-scheme://bucket", blobs.cache, tmp_path / "job")
    with pytest.raises(CodeError, match="is no content address"):
        unpacked("../../etc/passwd", uri, blobs.cache, tmp_path / "job")


FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("/tmp/x", FILE, "")], "lies outside"),
        ([("../x", FILE, "")], "lies outside"),
        ([("a/../../x", FILE, "")], "lies outside"),
        ([("out", LINK, "/etc")], "leads outside"),
        ([("a/out", LINK, "../../etc")], "leads outside"),
        ([("out", LINK, "."), ("out/x", FILE, "")], "lies below out"),
        ([("x/y", FILE, ""), ("x", LINK, ".")], "lies below x"),
        ([("x", LINK, "y"), ("x", FILE, "")], "is there twice"),
        ([("x", LINK, "y"), ("./x", FILE, "")], "is there twice"),
        ([("x", tarfile.LNKTYPE, "/etc/passwd")], "is neither"),
        ([("x", tarfile.FIFOTYPE, "")], "is neither"),
        ([("x", tarfile.CHRTYPE, "")], "is neither"),
        ([("s", FOLDER, ""), ("p/q/l", LINK, "../../s"), ("out", LINK, "p/q/l/../../z")], "outside"),
        ([("s", FOLDER, ""), ("out", LINK, "p/q/l/../../z"), ("p/q/l", LINK, "../../s")], "outside by other links"),
    ],
)
def test_what_could_be_written_outside_is_refused_before_or_undone(
    blobs: Blobs, tmp_path: Path, members: list[Member], why: str
) -> None:
    inside = tmp_path / "jobs" / "job"
    inside.parent.mkdir()
    with pytest.raises(CodeError, match=why):
        unpacked(blobs.put_members(*members), blobs.uri, blobs.cache, inside)
    assert list(inside.parent.iterdir()) == []


def test_what_is_no_archive_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(CodeError, match="cannot be unpacked on node"):
        unpacked(blobs.put(b"no tar"), blobs.uri, blobs.cache, tmp_path / "job")


def test_the_cache_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (
        code_archive.node_cache() == code_archive.node_cache()
        and code_archive.node_cache().stat().st_mode & 0o777 == 0o700
    )
    code_archive.node_cache().rename(tmp_path / "elsewhere")
    (tmp_path / f"regroup-code-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CodeError, match="belongs to somebody else"):
        code_archive.node_cache()
