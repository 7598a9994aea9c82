"""Parts of local files are read in order, within the free memory, and until the reader closes."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from regroup.workers.agent.checkpoints import read_ahead
from regroup.workers.agent.checkpoints.read_ahead import ReadAhead
from regroup.workers.storage.ranged_read import RangeReader

SIZE = 4123


class Reads:
    """Records the reads of storage, each of which waits until it may begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[str, int, int]] = []
        self.begun, self.may_read = threading.Event(), threading.Event()
        self.may_read.set()
        right = RangeReader.read_into

        def read_into(reader: RangeReader, name: str, start: int, views: Sequence[memoryview]) -> None:
            self.found.append((name, start, sum(len(view) for view in views)))
            self.begun.set()
            assert self.may_read.wait(10)
            right(reader, name, start, views)

        monkeypatch.setattr(RangeReader, "read_into", read_into)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    monkeypatch.setattr(read_ahead, "_PART_BYTES", 100)
    return Reads(monkeypatch)


def test_parts_are_read_until_a_file_cannot_be_read(tmp_path: Path, reads: Reads) -> None:
    parts = [("file", 50, 250), ("file", 1000, 100), ("missing", 0, 10), ("file", 2000, 10)]
    ReadAhead(str(tmp_path), parts).wait()
    assert reads.found == [
        ("file", 50, 100), ("file", 150, 100), ("file", 250, 50), ("file", 1000, 100), ("missing", 0, 10),
    ]  # fmt: skip


@pytest.mark.parametrize("free_bytes", [4 * 300, 0])
def test_most_of_the_free_memory_stays_free(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> None:
    monkeypatch.setattr(read_ahead, "free_memory_bytes", lambda: free_bytes)
    ReadAhead(str(tmp_path), [("file", 0, SIZE)]).wait()
    assert sum(size for _, _, size in reads.found) == free_bytes // 4


def test_close_waits_for_the_read_in_progress_only(tmp_path: Path, reads: Reads) -> None:
    reads.may_read.clear()
    ahead = ReadAhead(str(tmp_path), [("file", 0, SIZE)])
    assert reads.begun.wait(10)
    closing = threading.Thread(target=ahead.close)
    closing.start()
    assert ahead._closing.wait(10) and closing.is_alive()
    reads.may_read.set()
    closing.join(10)
    assert not closing.is_alive() and len(reads.found) == 1
