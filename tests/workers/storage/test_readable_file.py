"""Parts of local files arrive as they are, from the page cache or directly from the disk."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from regroup.workers.storage.readable_file import ReadableFile

SIZE = (20 << 20) + 1234


@pytest.fixture(scope="module")
def content() -> bytes:
    return os.urandom(SIZE)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> Path:
    with (tmp_path / "file").open("wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    return tmp_path / "file"


@pytest.fixture
def file(path: Path) -> Iterator[ReadableFile]:
    opened = ReadableFile(path)
    yield opened
    opened.close()


def cached_pages(path: Path) -> int:
    """Return how many pages of a file are in memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        count = -(-len(mapped) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * count)()
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), found) == 0
        return sum(each & 1 for each in found)


def forget(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached_pages(path) == 0


def read(file: ReadableFile, start: int, *sizes: int) -> tuple[int, bytes]:
    memory = [bytearray(size) for size in sizes]
    done = file.read_into(start, [memoryview(each) for each in memory])
    return done, b"".join(memory)


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize(
    ("start", "sizes"),
    [
        (0, (8 << 20,)),
        (8 << 20, (100, 0, 7 << 20, 5)),
        (4096, (3, (17 << 20) + 1)),
        (5, (2 << 20,)),
        (0, (100,)),
        (0, (1500,) * 1500),
    ],
)
def test_views_are_filled_in_order(
    file: ReadableFile, path: Path, content: bytes, start: int, sizes: tuple[int, ...], is_cached: bool
) -> None:
    if not is_cached:
        forget(path)
    assert read(file, start, *sizes) == (sum(sizes), content[start : start + sum(sizes)])


@pytest.mark.parametrize("is_cached", [True, False])
def test_the_end_of_the_file_ends_the_read(file: ReadableFile, path: Path, content: bytes, is_cached: bool) -> None:
    if not is_cached:
        forget(path)
    start = 16 << 20
    done, found = read(file, start, 5 << 20)
    assert done == SIZE - start
    assert found[:done] == content[start:] and not any(found[done:])
    assert read(file, 24 << 20, 2 << 20)[0] == 0


def test_a_large_read_of_an_uncached_part_leaves_the_page_cache_unchanged(file: ReadableFile, path: Path) -> None:
    forget(path)
    read(file, 0, 8 << 20)
    assert cached_pages(path) == 0


def test_a_file_in_memory_is_read(content: bytes) -> None:
    fd = os.memfd_create("file")
    os.write(fd, content)
    file = ReadableFile(Path(f"/proc/self/fd/{fd}"))
    assert read(file, 4096, 2 << 20) == (2 << 20, content[4096 : 4096 + (2 << 20)])
    file.close()
    os.close(fd)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReadableFile(tmp_path / "none")
