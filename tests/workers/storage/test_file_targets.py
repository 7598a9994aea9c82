"""Each storage gets the kind of file that suits it; none shows a file before it is complete."""

from pathlib import Path

import fsspec
import pytest

from regroup.workers.contract.checkpoint_manifest import CHUNK_BYTES
from regroup.workers.storage.file_targets import LocalFile, OrderedFile, S3Upload, open_target
from tests.support.servers.s3 import ObjectStorage


def test_a_file_in_a_folder_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    target = open_target(f"file://{tmp_path}/new", "file", 5)
    assert isinstance(target, LocalFile) and not target.is_in_order
    target.write(2, memoryview(b"cde"))
    target.write(0, memoryview(b"ab"))
    assert not (tmp_path / "new" / "file").exists()
    target.finish()
    assert (tmp_path / "new" / "file").read_bytes() == b"abcde"
    other = open_target(str(tmp_path), "file", 5)
    other.write(0, memoryview(b"ab"))
    other.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_an_ordered_file_is_complete_or_absent() -> None:
    fs = fsspec.filesystem("memory")
    target = OrderedFile(fs, "/ordered/file")
    assert target.is_in_order
    target.write(0, memoryview(b"ab"))
    target.write(2, memoryview(b"c"))
    target.finish()
    assert fs.cat_file("/ordered/file") == b"abc"
    OrderedFile(fs, "/ordered/other").abort()
    assert not fs.exists("/ordered/other")


def test_small_and_huge_objects_are_not_sent_in_parts(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    sizes = [5, CHUNK_BYTES, CHUNK_BYTES + 1, 10_000 * CHUNK_BYTES, 10_000 * CHUNK_BYTES + 1]
    kinds = [type(open_target(f"{s3.uri}/targets", "file", size)) for size in sizes]
    assert kinds == [OrderedFile, OrderedFile, S3Upload, S3Upload, OrderedFile]
