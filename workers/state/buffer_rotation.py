"""Which of a rank's buffers the next set goes to. Pure."""

from collections.abc import Sequence

from regroup.workers.state.shard_buffer import BufferState, ShardHeader


def buffer_to_write(headers: Sequence[ShardHeader], protected: int) -> int:
    """The buffer to give up: never a pinned one, never `protected`, of the others the one with the oldest set. One that
    was never used comes last, because it takes memory for good; but the newest set is not given up for that.

    `protected` holds the newest set that is known to be complete on all ranks (at first the state this generation was
    restored from): until a newer one is, a recovery may need it.

    Raises:
        RuntimeError: none is left, which too few buffers for the pins would cause.
    """
    steps = [header.step if header.state is BufferState.COMPLETE else -1 for header in headers]
    newest = max(steps)
    free = [
        (steps[number] == newest >= 0, header.state is BufferState.EMPTY, steps[number], number)
        for number, header in enumerate(headers)
        if number != protected and not header.pinned
    ]
    if not free:
        raise RuntimeError(
            f"none of {len(headers)} snapshot buffers may be written: one is the newest complete set, the others are "
            "pinned; more must have been pinned than there are buffers for"
        )
    return min(free)[-1]
