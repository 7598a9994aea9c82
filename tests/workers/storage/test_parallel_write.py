"""Files are written in chunks at the same time, are complete or absent, and are not repeated after an error."""

import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from regroup.workers.contract.checkpoint_manifest import CHUNK_BYTES
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.parallel_write import Draft, ParallelWrite
from tests.support.servers.s3 import ObjectStorage

SIZE = 2 * CHUNK_BYTES + 12_345


def draft(name: str, data: bytes, before: Callable[[int], None] = lambda start: None) -> Draft:
    def read(start: int, into: memoryview) -> None:
        before(start)
        into[:] = data[start : start + len(into)]

    return Draft(name, len(data), read)


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


def crcs(data: bytes) -> tuple[int, ...]:
    return tuple(zlib.crc32(data[at : at + CHUNK_BYTES]) for at in range(0, max(1, len(data)), CHUNK_BYTES))


def test_files_are_written_with_a_checksum_for_each_chunk(tmp_path: Path, data: bytes) -> None:
    counted: list[int] = []
    drafts = [draft("large", data), draft("small", b"facts"), draft("empty", b"")]
    written = ParallelWrite(f"file://{tmp_path}/new", drafts, count=counted.append).run()
    assert [(file.name, file.size_bytes, file.crcs) for file in written] == [
        ("large", SIZE, crcs(data)),
        ("small", 5, crcs(b"facts")),
        ("empty", 0, (0,)),
    ]
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {
        "large": data,
        "small": b"facts",
        "empty": b"",
    }
    assert sum(counted) == SIZE + 5


def test_chunks_are_written_at_the_same_time(tmp_path: Path, data: bytes) -> None:
    meeting = threading.Barrier(3, timeout=20)
    ParallelWrite(str(tmp_path), [draft("large", data, lambda start: bool(meeting.wait()))]).run()
    assert (tmp_path / "large").read_bytes() == data


def test_after_an_error_nothing_is_half_written_and_complete_files_are_not_repeated(
    tmp_path: Path, data: bytes
) -> None:
    reads: list[str] = []
    is_bad = threading.Event()
    is_bad.set()

    def fail(start: int) -> None:
        reads.append("large")
        if start and is_bad.is_set():
            raise OSError("503 slow down")

    small = draft("small", b"facts", lambda start: reads.append("small"))
    write = ParallelWrite(str(tmp_path), [small])
    write.run()
    write = ParallelWrite(str(tmp_path), [small, draft("large", data, fail)])
    with pytest.raises(OSError, match="503"):
        write.run()
    assert [path.name for path in tmp_path.iterdir()] in ([], ["small"])
    is_bad.clear()
    before = reads.count("small")
    repeated = 0 if "small" in write.written else 1
    assert [file.name for file in write.run()] == ["small", "large"]
    assert reads.count("small") - before == repeated
    assert (tmp_path / "large").read_bytes() == data


def test_bytes_of_an_abandoned_file_do_not_count(tmp_path: Path, data: bytes) -> None:
    counted: list[int] = []
    is_bad = threading.Event()
    is_bad.set()

    def fail(start: int) -> None:
        if start == 2 * CHUNK_BYTES and is_bad.is_set():
            raise OSError("503 slow down")

    write = ParallelWrite(str(tmp_path), [draft("large", data, fail)], count=counted.append)
    with pytest.raises(OSError, match="503"):
        write.run()
    assert sum(counted) == 0
    is_bad.clear()
    write.run()
    assert sum(counted) == SIZE


def test_calls_run_in_the_same_threads(tmp_path: Path, data: bytes) -> None:
    names: list[str] = []
    ParallelWrite(str(tmp_path), [draft("large", data)]).run(
        [lambda: names.append(threading.current_thread().name) for _ in range(3)]
    )
    assert len(names) == 3 and all(name.startswith("checkpoint-write") for name in names)


@pytest.mark.parametrize(("device", "reason"), [("/dev/full", "No space left"), ("/proc/self/mem", "Input/output")])
def test_a_disk_that_fills_during_a_write_leaves_nothing(tmp_path: Path, data: bytes, device: str, reason: str) -> None:
    write = ParallelWrite(str(tmp_path), [draft("small", b"facts"), draft("large", data)], device=device)
    with pytest.raises(OSError, match=reason):
        write.run()
    assert "large" not in write.written
    assert [path.name for path in tmp_path.iterdir()] in ([], ["small"])
    write.run()
    assert (tmp_path / "large").read_bytes() == data


@pytest.fixture
def root(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.uri}/{request.node.name}"


def test_object_storage_gets_the_chunks_as_parts_of_one_upload(root: str, data: bytes) -> None:
    written = ParallelWrite(root, [draft("large", data), draft("small", b"facts")]).run()
    assert [file.crcs for file in written] == [crcs(data), crcs(b"facts")]
    assert fsspec_storage.read_bytes(f"{root}/large") == data
    assert fsspec_storage.read_bytes(f"{root}/small") == b"facts"
    fs, path = fsspec.core.url_to_fs(root, skip_instance_cache=True, use_listings_cache=False)
    assert fs.info(f"{path}/large")["ETag"].strip('"').endswith("-3"), "three parts"


def test_an_upload_that_fails_leaves_no_object_and_no_parts(root: str, data: bytes) -> None:
    def fail(start: int) -> None:
        if start == 2 * CHUNK_BYTES:
            raise OSError("the snapshot is gone")

    with pytest.raises(OSError, match="gone"):
        ParallelWrite(root, [draft("large", data, fail)]).run()
    fs, path = fsspec.core.url_to_fs(root, skip_instance_cache=True, use_listings_cache=False)
    assert fs.find(path) == []
    assert not fs.list_multipart_uploads(path.partition("/")[0])
