"""Test of the rate of snapshots at a small size."""

import pytest

from benchmarks.tiers.snapshot_rate import measure, state_of


def test_a_small_state() -> None:
    found = measure(4 << 20, 1)
    assert min(found.bytes_per_s, found.first_bytes_per_s, found.prepare_bytes_per_s) > 0


def test_the_state_has_the_size() -> None:
    assert sum(tensor.nbytes for tensor in state_of(4 << 20).values()) == pytest.approx(4 << 20, rel=0.01)
