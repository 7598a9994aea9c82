"""Choose the buffer of a rank for its next snapshot. Pure."""

from collections.abc import Sequence

from regroup.workers.state.shard_buffer import BufferState, ShardHeader


def buffer_to_write(headers: Sequence[ShardHeader], protected: int) -> int:
    """Return the number of the buffer to overwrite.

    The function never chooses a pinned or the protected buffer. Among the others it chooses the one with the oldest
    snapshot. An unused buffer comes last, because it takes memory permanently, but before the newest snapshot.

    Args:
        headers: Header of each buffer of the rank.
        protected: Buffer with the newest snapshot that is complete on all ranks. At first this is the state that the
            generation was restored from. A recovery may need it until a newer one is complete.

    Raises:
        RuntimeError: No buffer is left, because there are too few buffers for the pins.
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
            f"none of {len(headers)} snapshot buffers may be overwritten: one holds the newest complete snapshot, "
            "and the others are pinned; there are more pins than spare buffers"
        )
    return min(free)[-1]


def buffers_to_prepare(headers: Sequence[ShardHeader], source: int, count: int) -> list[int]:
    """Return the numbers of the buffers whose memory the next snapshots need, in the order of their use.

    Args:
        headers: Header of each buffer of the rank.
        source: Buffer with the restored state, or -1.
        count: Number of buffers that snapshots use at the same time.
    """
    others = [number for number in range(len(headers)) if number != source]
    others.sort(key=lambda number: (headers[number].state is BufferState.EMPTY, headers[number].step))
    return others[:count] if source < 0 else [*others[: count - 1], source]
