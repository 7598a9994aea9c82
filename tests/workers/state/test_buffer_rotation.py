"""The set a recovery may need is never the one that is overwritten."""

import itertools

import pytest

from regroup.workers.state.buffer_rotation import buffer_to_write, buffers_to_prepare
from regroup.workers.state.shard_buffer import BufferState, Pin, ShardHeader

EMPTY = ShardHeader(BufferState.EMPTY)


def complete(step: int, *, pinned: bool = False) -> ShardHeader:
    return ShardHeader(BufferState.COMPLETE, generation=1, step=step, pinned=Pin.MIRROR if pinned else Pin.NONE)


def test_the_oldest_goes_first() -> None:
    assert buffer_to_write([EMPTY, EMPTY, EMPTY], -1) == 0
    assert buffer_to_write([complete(4), complete(3), EMPTY], 0) == 1
    assert buffer_to_write([complete(4), complete(5), complete(3)], 1) == 2


def test_an_unused_buffer_is_the_last_choice_before_the_newest() -> None:
    assert buffer_to_write([complete(4), EMPTY, complete(3)], 0) == 2
    assert buffer_to_write([complete(4), EMPTY, complete(3, pinned=True)], 0) == 1
    assert buffer_to_write([complete(4), EMPTY, EMPTY], -1) == 1, "the newest is never overwritten"


def test_without_pins_two_buffers_are_in_use() -> None:
    """Rotate as a rank does: its last snapshot is protected while it writes the next."""
    headers, protected = [EMPTY] * 5, -1
    for step in range(1, 20):
        number = buffer_to_write(headers, protected)
        headers[number], protected = complete(step), number
    assert sum(header is not EMPTY for header in headers) == 2


def test_a_torn_set_goes_before_a_whole_one() -> None:
    torn = ShardHeader(BufferState.WRITING, generation=1, step=9)
    assert buffer_to_write([complete(8), torn, complete(7)], 0) == 1


def test_protected_and_pinned_sets_are_left_alone() -> None:
    assert buffer_to_write([complete(1), complete(2, pinned=True), complete(3)], 0) == 2
    with pytest.raises(RuntimeError, match="none of 3"):
        buffer_to_write([complete(1), complete(2, pinned=True), complete(3, pinned=True)], 0)


def test_three_buffers_suffice_for_a_pinned_a_protected_and_a_new_one() -> None:
    for protected, pinned in itertools.product(range(3), range(3)):
        headers = [complete(step, pinned=step == pinned) for step in range(3)]
        assert buffer_to_write(headers, protected) not in (protected, pinned)


def test_the_buffers_that_are_written_next_are_prepared_first() -> None:
    assert buffers_to_prepare([EMPTY] * 5, -1, 4) == [0, 1, 2, 3]
    assert buffers_to_prepare([complete(4), EMPTY, complete(3), EMPTY, EMPTY], 0, 4) == [2, 1, 3, 0]
    assert buffers_to_prepare([complete(4), EMPTY, EMPTY], 0, 2) == [1, 0], "the restored buffer is written after it"
