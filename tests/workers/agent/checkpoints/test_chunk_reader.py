"""Any part of a checkpoint's files is read exactly, and a wrong byte never reaches a rank."""

import os
import threading
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regroup.workers.agent.checkpoints import chunk_reader
from regroup.workers.agent.checkpoints.chunk_reader import ChunkReader
from regroup.workers.agent.checkpoints.read_ahead import ReadAhead
from regroup.workers.agent.slices.saved_state import SliceRead, StateLostError
from regroup.workers.contract.checkpoint_manifest import FileChunks
from regroup.workers.state.slices.boxes import Region
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.storage.ranged_read import RangeReader
from tests.support.servers.s3 import ObjectStorage

CHUNK = 1000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reader, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(chunk_reader, "_MOST_SPAN_BYTES", 2 * CHUNK)


def chunks_of(data: bytes) -> FileChunks:
    return FileChunks(len(data), tuple(zlib.crc32(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)))


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    content = os.urandom(4 * CHUNK + 123)
    (tmp_path / "file").write_bytes(content)
    return content


def bytes_of(content: bytes, region: Region) -> bytes:
    shape, strides = (*region.counts, region.run_bytes), (*region.strides_bytes, 1)
    return np.ndarray(shape, np.uint8, content, region.offset, strides).tobytes()


REGIONS = st.tuples(st.integers(0, 1500), st.integers(1, 200), st.lists(st.integers(1, 4), max_size=2)).map(
    lambda drawn: Region(drawn[0], drawn[1], tuple(drawn[2]), (400, 210)[2 - len(drawn[2]) :])
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(regions=st.lists(REGIONS, min_size=1, max_size=5))
async def test_each_region_arrives(tmp_path: Path, data: bytes, regions: list[Region]) -> None:
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    memories = [bytearray(5 + region.size_bytes) for region in regions]
    reads = [
        SliceRead(region, memoryview(memory), Region(5, region.size_bytes))
        for region, memory in zip(regions, memories, strict=True)
    ]
    await reader.read("file", reads)
    reader.close()
    for region, memory in zip(regions, memories, strict=True):
        assert memory[5:] == bytes_of(data, region)


async def test_a_region_that_spans_a_large_file_needs_little_memory(tmp_path: Path) -> None:
    """Read a narrow column of a large tensor: its rows lie far apart."""
    rows, row = 200, 5 * CHUNK
    content = os.urandom(rows * row)
    (tmp_path / "file").write_bytes(content)
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(content)})
    column, memory = Region(10, 20, (rows,), (row,)), bytearray(20 * rows)
    tracemalloc.start()
    try:
        await reader.read("file", [SliceRead(column, memoryview(memory), Region(0, len(memory)))])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reader.close()
    assert memory == bytes_of(content, column)
    assert peak_bytes < len(content) // 2


async def test_a_whole_file_is_read_once_and_counted(tmp_path: Path, data: bytes) -> None:
    counted: list[int] = []
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)}, counted.append)
    memory = bytearray(len(data))
    half = len(data) // 2
    parts = [(0, half), (half, len(data) - half)]
    await reader.read("file", [SliceRead(Region(at, n), memoryview(memory), Region(at, n)) for at, n in parts])
    reader.close()
    assert memory == data and sum(counted) == len(data)


async def test_parts_of_one_chunk_for_several_calls_are_read_once(tmp_path: Path, data: bytes) -> None:
    counted: list[int] = []
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)}, counted.append)
    memory = bytearray(CHUNK)
    for at in range(0, CHUNK, 100):
        await reader.read("file", [SliceRead(Region(at, 100), memoryview(memory), Region(at, 100))])
    reader.close()
    assert memory == data[:CHUNK] and counted == [CHUNK]


async def test_the_total_is_what_is_counted_in_the_end(tmp_path: Path, data: bytes) -> None:
    counted: list[int] = []
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)}, counted.append)
    memory = memoryview(bytearray(len(data)))
    reads = [SliceRead(Region(at, 100), memory, Region(at, 100)) for at in (0, 500, len(data) - 100)]
    total = reader.total_bytes({"file": reads})
    await reader.read("file", reads)
    reader.close()
    assert total == sum(counted) == CHUNK + len(data) - len(data) // CHUNK * CHUNK, "the first and the last chunk"


@pytest.mark.parametrize("wrong", [1, 2, 3])
async def test_wrong_bytes_of_a_range_are_read_again(
    tmp_path: Path, data: bytes, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage returns wrong bytes for a range, as a faulty cache does."""
    reads = 0
    right = RangeReader.read_into

    def read_into(self: RangeReader, name: str, start: int, views: Sequence[memoryview]) -> None:
        nonlocal reads
        right(self, name, start, views)
        if start == CHUNK and reads < wrong:
            reads += 1
            views[0][7] ^= 1

    monkeypatch.setattr(RangeReader, "read_into", read_into)
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    memory = bytearray(len(data))
    whole = [SliceRead(Region(0, len(data)), memoryview(memory), Region(0, len(data)))]
    if wrong < 3:
        await reader.read("file", whole)
        assert memory == data
    else:
        with pytest.raises(StorageError, match=r"file is damaged: bytes from 1000 on have the CRC-32 .* 3 times"):
            await reader.read("file", whole)
    reader.close()


async def test_a_changed_file_is_damage_and_silent_storage_is_not(tmp_path: Path, data: bytes) -> None:
    part = [SliceRead(Region(1500, 10), memoryview(bytearray(10)), Region(0, 10))]
    changed = bytearray(data)
    changed[1999] ^= 1
    (tmp_path / "file").write_bytes(changed)
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    with pytest.raises(StorageError, match="file is damaged"):
        await reader.read("file", part)
    reader.close()
    (tmp_path / "file").unlink()
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    with pytest.raises(StorageError, match="missing"):
        await reader.read("file", part)
    (tmp_path / "file").mkdir()
    with pytest.raises(StateLostError, match="IsADirectoryError"):
        await reader.read("file", part)
    reader.close()


@pytest.mark.parametrize(
    "error", [RuntimeError("no route to storage"), PermissionError("the credentials have expired")]
)
async def test_any_error_of_storage_is_silence_and_a_file_system_that_is_gone_too(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    folder = tmp_path / "checkpoints" / "step-4.gen-1"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(data)
    part = [SliceRead(Region(1500, 10), memoryview(bytearray(10)), Region(0, 10))]
    reader = ChunkReader(str(folder), {"file": chunks_of(data)})
    folder.parent.rename(tmp_path / "away")
    with pytest.raises(StateLostError, match="is the file system mounted"):
        await reader.read("file", part)

    def fail(self: RangeReader, name: str, start: int, views: Sequence[memoryview]) -> None:
        raise error

    monkeypatch.setattr(RangeReader, "read_into", fail)
    with pytest.raises(StateLostError, match=str(error)):
        await reader.read("file", part)
    reader.close()


class Recorder:
    """Records the reads of storage. The first one waits a little for another one at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience_s: float = 0.0) -> None:
        self.reads: list[tuple[str, int, int]] = []
        """File, first byte and number of bytes of each read."""
        self.met = threading.Event()
        """Set when two reads were in progress at once."""
        self._active, self._patience_s = 0, patience_s
        right = RangeReader.read_into

        def read_into(reader: RangeReader, name: str, start: int, views: Sequence[memoryview]) -> None:
            self.reads.append((name, start, sum(len(view) for view in views)))
            self._active += 1
            if self._active > 1:
                self.met.set()
            if len(self.reads) == 1:
                self.met.wait(self._patience_s)
            right(reader, name, start, views)
            self._active -= 1

        monkeypatch.setattr(RangeReader, "read_into", read_into)


async def test_a_local_file_is_read_from_its_beginning_to_its_end(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in order: the kernel reads ahead only for a reader that continues where it stopped."""
    recorder = Recorder(monkeypatch, patience_s=0.5)
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    memory = bytearray(len(data))
    for size in (len(data), CHUNK + 10):  # whole chunks, and a part of one
        await reader.read("file", [SliceRead(Region(0, size), memoryview(memory), Region(0, size))])
    reader.close()
    assert memory == data and not recorder.met.is_set()
    starts = [start for _, start, _ in recorder.reads]
    assert starts == [*range(0, len(data), CHUNK), 0, CHUNK]


async def test_objects_are_read_in_parallel(data: bytes, s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    fsspec_storage.write_bytes(f"{s3.uri}/parallel/file", data)
    recorder = Recorder(monkeypatch, patience_s=10)
    reader = ChunkReader(f"{s3.uri}/parallel", {"file": chunks_of(data)})
    reader.read_ahead([("file", 0, len(data))])
    memory = bytearray(len(data))
    await reader.read("file", [SliceRead(Region(0, len(data)), memoryview(memory), Region(0, len(data)))])
    reader.close()
    assert memory == data and recorder.met.is_set()
    assert len(recorder.reads) == -(-len(data) // CHUNK), "an object is not read in advance"


def test_reading_in_advance_ends_with_the_reader(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ReadAhead] = []
    close = ReadAhead.close

    def note_close(ahead: ReadAhead) -> None:
        close(ahead)
        closed.append(ahead)

    monkeypatch.setattr(ReadAhead, "close", note_close)
    reader = ChunkReader(str(tmp_path), {"file": chunks_of(data)})
    reader.read_ahead([("file", 0, len(data))])
    reader.close()
    assert closed == [reader.ahead]
