"""Tests of the memory of shards, sampled from a process that holds some."""

import mmap
import os
import subprocess
import sys

import pytest

from benchmarks.tiers.node_memory import MemorySample, NodeMemory, sample_of

SIZE = 1 << 20
HOLDER = f"""
import mmap, os, sys
first, second, other = (os.memfd_create(name) for name in ("regroup-snapshot-0-0", "regroup-mirror-1", "other"))
for fd in (first, second, other):
    os.posix_fallocate(fd, 0, {SIZE})
copy = os.dup(first)
mapped = mmap.mmap(second, {SIZE})
os.close(second)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_file_counts_once_also_if_it_is_only_mapped() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        found = sample_of(process.pid)
        process.stdin.close()
    assert found is not None and found.files_bytes == 2 * SIZE
    assert found.anonymous_bytes > mmap.PAGESIZE
    assert sample_of(process.pid) is None, "it has exited"


def test_only_allocated_memory_counts() -> None:
    fd = os.memfd_create("regroup-snapshot-0-1")
    os.ftruncate(fd, 64 * SIZE)
    before = sample_of(os.getpid())
    os.posix_fallocate(fd, 0, SIZE)
    after = sample_of(os.getpid())
    os.close(fd)
    assert before is not None and after is not None and after.files_bytes - before.files_bytes == SIZE


def test_the_peak_of_a_period_has_what_was_staged_in_it() -> None:
    memory = NodeMemory({"n": [MemorySample(1, 900, 10), MemorySample(2, 100, 50), MemorySample(3, 120, 40),
                               MemorySample(4, 110, 80), MemorySample(5, 900, 10)]})  # fmt: skip
    assert memory.peak_bytes("n", 2, 4) == 140, "110 in files, and 30 more than at the start"
    with pytest.raises(ValueError, match="no sample between 6"):
        memory.peak_bytes("n", 6, 7)
