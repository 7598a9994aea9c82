"""Memory files that a process with a descriptor cannot shorten."""

import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.os import memory_files
from regroup.workers.os.memory_files import allocate_memory, allocated_bytes, free_memory_after, new_memory_file

MIB = 1 << 20
SHORTEN = "import os, sys; os.ftruncate(int(sys.argv[1]), 0)"


@pytest.fixture
def file() -> Iterator[int]:
    fd = new_memory_file("memory", 2 * MIB)
    yield fd
    os.close(fd)


def test_another_process_cannot_shorten_a_file_that_is_mapped(file: int) -> None:
    """Check this because a process that reads a mapped file beyond its end gets SIGBUS."""
    with mmap.mmap(file, 2 * MIB) as mapped:
        mapped[2 * MIB - 1] = 7
        command = [sys.executable, "-c", SHORTEN, str(file)]
        shortening = subprocess.run(command, pass_fds=[file], capture_output=True, text=True, check=False)
        assert "PermissionError" in shortening.stderr and shortening.returncode == 1
        assert os.fstat(file).st_size == 2 * MIB, "the next access would end this process"
        assert mapped[2 * MIB - 1] == 7


def test_another_process_can_add_no_seal_that_keeps_the_owner_from_writing(file: int) -> None:
    command = [sys.executable, "-c", "import fcntl, sys; fcntl.fcntl(int(sys.argv[1]), 1033, 8)", str(file)]
    sealing = subprocess.run(command, pass_fds=[file], capture_output=True, text=True, check=False)
    assert "PermissionError" in sealing.stderr
    assert os.pwrite(file, b"x", 0) == 1


def test_a_file_can_grow(file: int) -> None:
    os.posix_fallocate(file, 0, 4 * MIB)
    assert os.fstat(file).st_size == 4 * MIB == allocated_bytes(file)


def test_memory_at_the_end_is_returned_and_can_be_used_again(file: int) -> None:
    os.posix_fallocate(file, 0, 2 * MIB)
    with mmap.mmap(file, 2 * MIB) as mapped:
        mapped[MIB - 1], mapped[MIB] = 1, 1
        free_memory_after(file, MIB)
        assert (os.fstat(file).st_size, allocated_bytes(file)) == (2 * MIB, MIB)
        assert (mapped[MIB - 1], mapped[MIB]) == (1, 0)
        mapped[2 * MIB - 1] = 1
    free_memory_after(file, 2 * MIB)
    assert allocated_bytes(file) == MIB + 2 * mmap.PAGESIZE, "that which was read, and that which was written"


@pytest.mark.parametrize("chosen", ["never", "advise"])
@pytest.mark.parametrize("size_bytes", [1, 2 * MIB, 5 * MIB + 4096])
def test_all_memory_is_allocated_with_each_setting_of_the_kernel(
    file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, size_bytes: int
) -> None:
    """Check both ways. The kernel itself may have any setting and refuses what it does not allow."""
    setting = tmp_path / "shmem_enabled"
    setting.write_text(f"always [{chosen}] force\n")
    monkeypatch.setattr(memory_files, "HUGE_PAGE_SETTING", setting)
    os.pwrite(file, b"x", 0)
    allocate_memory(file, size_bytes)
    assert os.fstat(file).st_size == max(2 * MIB, size_bytes)
    assert allocated_bytes(file) >= size_bytes
    assert os.pread(file, 2, 0) == b"x\0"


@pytest.mark.parametrize("chosen", ["never", "advise"])
def test_memory_that_the_kernel_refuses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    setting = tmp_path / "shmem_enabled"
    setting.write_text(f"always [{chosen}] force\n")
    monkeypatch.setattr(memory_files, "HUGE_PAGE_SETTING", setting)
    fd = os.memfd_create("fixed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    with pytest.raises(PermissionError):
        allocate_memory(fd, 4 * MIB)
    os.close(fd)


def test_a_file_that_the_kernel_does_not_change_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(OSError):
            free_memory_after(writing, -1)
    finally:
        os.close(writing)
