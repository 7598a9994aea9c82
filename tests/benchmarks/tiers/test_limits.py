"""Tests of the rates of the machine."""

import ctypes
import mmap
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.tiers.limits import dd_rate, drop_cached, memcpy_rate, rate, read_rate, written_uncached


def test_rates_are_those_of_the_median_call_after_the_first() -> None:
    calls: list[int] = []
    assert rate(1000, 3, lambda: calls.append(1)) > 0 and len(calls) == 4


def test_memory_and_disk(tmp_path: Path) -> None:
    assert memcpy_rate(1 << 20, 1) > 0
    assert dd_rate(tmp_path, 2 << 20, 1) > 0
    assert not list(tmp_path.iterdir()), "no file remains"
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    assert read_rate([tmp_path / "a"], 1) > 0


def test_each_read_is_prepared() -> None:
    calls: list[str] = []
    rate(1000, 2, lambda: calls.append("work"), lambda: calls.append("prepare"))
    assert calls == ["prepare", "work"] * 3


def test_each_new_file_is_forgotten(tmp_path: Path) -> None:
    """Check that memory has no file soon after it got its name."""
    path, other = tmp_path / "a" / "x.distcp", tmp_path / "a" / "y.other"
    path.parent.mkdir()
    with written_uncached(tmp_path, "*.distcp"):
        for each in (path, other):
            with each.with_name("draft").open("wb") as file:
                file.write(bytes(4 << 20))
                os.fsync(file.fileno())
            each.with_name("draft").rename(each)
        deadline_s = time.monotonic() + 10
        while cached_pages(path):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    assert cached_pages(other) == 1024
    drop_cached([other, tmp_path / "missing"])
    assert cached_pages(other) == 0


def cached_pages(path: Path) -> int:
    """Return how many pages of a file are in memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        count = len(mapped) // mmap.PAGESIZE
        found = (ctypes.c_ubyte * count)()
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), found) == 0
        return sum(each & 1 for each in found)
