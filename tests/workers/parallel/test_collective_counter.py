"""Bytes that a rank sends for each kind of collective."""

import pytest

from regroup.workers.parallel.collective_counter import wire_bytes


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all_reduce", 150), ("all_gather", 75), ("reduce_scatter", 75), ("send", 100), ("all_to_all", 100)],
)
def test_rings_send_all_but_their_own_part_once_or_twice(kind: str, sent: float) -> None:
    assert wire_bytes(kind, 100, 4) == sent
