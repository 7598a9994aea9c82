"""Archived rank output, read from a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from regroup.service.domain.errors import NotFoundError, UnavailableError
from regroup.service.operations.logs import read_archived
from regroup.service.ports.cluster import LogChunk

TEXT = "eins\nzwei €\n"


@pytest.fixture
def storage(tmp_path: Path) -> str:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "g2-rank1.out").write_text(TEXT)
    return f"file://{tmp_path}"


async def test_a_chunk_is_read_from_its_offset(storage: str) -> None:
    size = len(TEXT.encode())
    assert await read_archived(storage, 2, 1, "stdout", 0, 5) == LogChunk("eins\n", 0, 5, False)
    assert await read_archived(storage, 2, 1, "stdout", 5, 100) == LogChunk("zwei €\n", 5, size, True)
    for offset in (size, size + 100):
        assert await read_archived(storage, 2, 1, "stdout", offset, 100) == LogChunk("", offset, offset, True)


async def test_a_rank_that_printed_nothing_has_an_empty_log(storage: str, tmp_path: Path) -> None:
    (tmp_path / "logs" / "g2-rank1.err").touch()
    assert await read_archived(storage, 2, 1, "stderr", 0, 10) == LogChunk("", 0, 0, True)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_a_chunk_never_splits_a_character(storage: str, limit: int) -> None:
    found, offset = "", 0
    while not (chunk := await read_archived(storage, 2, 1, "stdout", offset, max(3, limit))).complete:
        assert chunk.next_offset > offset
        found, offset = found + chunk.data, chunk.next_offset
    assert found + chunk.data == TEXT


@pytest.mark.parametrize(
    ("generation", "rank", "stream", "name"),
    [(1, 1, "stdout", "g1-rank1.out"), (2, 0, "stdout", "g2-rank0.out"), (2, 1, "stderr", "g2-rank1.err")],
)
async def test_missing_output_is_reported_with_its_file_name(
    storage: str, generation: int, rank: int, stream: str, name: str
) -> None:
    with pytest.raises(NotFoundError, match=name):
        await read_archived(storage, generation, rank, stream, 0, 10)


async def test_unreadable_storage_is_unavailable_not_missing() -> None:
    with pytest.raises(UnavailableError, match="no-such-scheme"):
        await read_archived("no-such-scheme://bucket", 1, 0, "stdout", 0, 10)


def test_a_chunk_has_whole_characters_until_the_stream_ends() -> None:
    data = "a€".encode()
    assert LogChunk.of(data[:2], 0, 2, is_ended=False) == LogChunk("a", 0, 1, False)
    assert LogChunk.of(data[1:2], 1, 2, is_ended=False) == LogChunk("", 1, 1, False)
    assert LogChunk.of(data[:2], 0, 2, is_ended=True) == LogChunk("a�", 0, 2, True)
    assert LogChunk.of(data[1:2], 1, 4, is_ended=False) == LogChunk("�", 1, 2, False)


def test_the_server_starts_without_any_storage_backend() -> None:
    code = "import sys, regroup.api.app, regroup.service.operations.logs; assert 'fsspec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
