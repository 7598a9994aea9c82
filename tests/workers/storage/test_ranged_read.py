"""Parts of files are read into several memories at once, from a folder and from object storage."""

from pathlib import Path

import pytest

from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.storage.ranged_read import RangeReader
from tests.support.servers.s3 import ObjectStorage

DATA = bytes(range(256)) * 8


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: ObjectStorage) -> str:
    if request.param == "folder":
        return f"file://{tmp_path}/root"
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.uri}/ranged"


@pytest.fixture
def reader(root: str) -> RangeReader:
    fsspec_storage.write_bytes(f"{root}/step-2.gen-1/file", DATA)
    fsspec_storage.write_bytes(f"{root}/step-1.gen-1/older", DATA[::-1])
    return RangeReader(f"{root}/step-2.gen-1")


def read(reader: RangeReader, name: str, start: int, *sizes: int) -> list[bytes]:
    memory = [bytearray(size) for size in sizes]
    reader.read_into(name, start, [memoryview(each) for each in memory])
    return [bytes(each) for each in memory]


def test_views_are_filled_one_after_the_other(reader: RangeReader) -> None:
    assert read(reader, "file", 100, 7, 0, 300) == [DATA[100:107], b"", DATA[107:407]]
    assert read(reader, "../step-1.gen-1/older", 3, 4) == [DATA[::-1][3:7]]


def test_more_views_than_one_call_takes_are_filled(reader: RangeReader) -> None:
    assert b"".join(read(reader, "file", 0, *[1] * len(DATA))) == DATA


@pytest.mark.parametrize(
    ("name", "start", "words"), [("file", len(DATA) - 3, "ends 2 bytes too early"), ("none", 0, "missing")]
)
def test_missing_bytes_are_an_error(reader: RangeReader, name: str, start: int, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        read(reader, name, start, 2, 3)


def test_close_allows_another_read(reader: RangeReader) -> None:
    read(reader, "file", 0, 1)
    reader.close()
    assert read(reader, "file", 0, 1) == [DATA[:1]]
