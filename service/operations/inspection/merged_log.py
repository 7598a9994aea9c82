"""The output of several ranks as one stream, in the order in which it arrives."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from regroup.service.operations.log_followers import LogFollowers, LogSource
from regroup.service.operations.logs import LogPiece, LogPosition

MAX_OUTPUTS = 64
"""Most outputs of ranks in one stream."""
_LETTERS = {"stdout": "o", "stderr": "e"}
_WORDS = {letter: word for word, letter in _LETTERS.items()}


@dataclass(frozen=True)
class MergedPiece:
    """A piece of the output of one rank, and the positions of all outputs after it."""

    rank: int
    stream: str
    piece: LogPiece
    positions: str
    """Resumes the stream after this piece."""


Positions = dict[tuple[int, str], LogPosition]
"""(rank, stream) → position of the next byte."""


def format_positions(positions: Mapping[tuple[int, str], LogPosition]) -> str:
    """Return positions as text: `RANK STREAM GENERATION.OFFSET`, for example `0o2.4096,1e2.0`."""
    return ",".join(
        f"{rank}{_LETTERS[stream]}{at.generation}.{at.offset}" for (rank, stream), at in sorted(positions.items())
    )


def parse_positions(text: str, expected: Sequence[tuple[int, str]]) -> Positions:
    """Parse the output of `format_positions`.

    Raises:
        ValueError: it is not valid, or not of these outputs.
    """
    found = Positions()
    for part in text.split(","):
        letter = next((each for each in _WORDS if each in part), "")
        rank, _, place = part.partition(letter) if letter else ("", "", "")
        numbers = [rank, *place.split(".")]
        if len(numbers) != 3 or not all(each.isdecimal() and len(each) < 16 for each in numbers):
            raise ValueError(f"Last-Event-ID {text[:100]!r} is not an id of this stream")
        found[int(rank), _WORDS[letter]] = LogPosition(int(numbers[1]), int(numbers[2]))
    if set(found) != set(expected):
        raise ValueError(f"Last-Event-ID {text[:100]!r} belongs to a stream of other ranks")
    return found


async def follow_merged(
    followers: LogFollowers, job_id: str, positions: Positions, only: int | None
) -> AsyncGenerator[MergedPiece | None]:
    """Yield output of several ranks as it arrives, until the job or the only generation has ended.

    Raises:
        FollowerDroppedError: the caller was too slow.
    """
    arrived = asyncio.Queue[tuple[tuple[int, str], LogPiece | None] | None](maxsize=2 * MAX_OUTPUTS)

    async def read(output: tuple[int, str]) -> None:
        source = LogSource(job_id, output[0], output[1], only)
        async with aclosing(followers.follow(source, positions[output])) as pieces:
            async for piece in pieces:
                await arrived.put((output, piece))
        await arrived.put(None)

    tasks = [asyncio.create_task(read(output)) for output in sorted(positions)]
    now, reading = dict(positions), len(tasks)
    try:
        while reading:
            failed = next((task for task in tasks if task.done() and task.exception()), None)
            if failed is not None:
                failed.result()
            try:
                async with asyncio.timeout(1.0):
                    item = await arrived.get()
            except TimeoutError:
                yield None
                continue
            if item is None:
                reading -= 1
                continue
            output, piece = item
            if piece is None:
                yield None
                continue
            now[output] = piece.next
            yield MergedPiece(*output, piece, format_positions(now))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
