"""One read for all that wait for the same value."""

import asyncio
from dataclasses import dataclass

import pytest

from regroup.service.cluster_state.joined_read import JoinedRead


@dataclass
class Source:
    """A value that changes. A read returns it as it was when the read began, and takes until it is released."""

    value: int = 0
    begun: int = 0
    is_failing: bool = False

    def __post_init__(self) -> None:
        self.released = asyncio.Event()

    async def read(self) -> int:
        self.begun += 1
        found = self.value
        await self.released.wait()
        if self.is_failing:
            raise OSError("no answer")
        return found


async def begun(source: Source, count: int) -> None:
    async with asyncio.timeout(5):
        while source.begun < count:  # noqa: ASYNC110  # the task runs in this loop
            await asyncio.sleep(0)


async def test_callers_during_a_read_share_the_next_one() -> None:
    source = Source()
    joined = JoinedRead(source.read)
    first = asyncio.create_task(joined.get())
    await begun(source, 1)
    source.value = 7
    others = [asyncio.create_task(joined.get()) for _ in range(20)]
    await asyncio.sleep(0)
    source.released.set()
    assert await first == 0, "it began before the change"
    assert await asyncio.gather(*others) == [7] * 20 and source.begun == 2
    assert await joined.get() == 7 and source.begun == 3


async def test_callers_before_a_read_begins_share_it() -> None:
    source = Source(value=3)
    source.released.set()
    joined = JoinedRead(source.read)
    assert await asyncio.gather(*(joined.get() for _ in range(10))) == [3] * 10
    assert source.begun == 1


async def test_a_cancelled_caller_does_not_end_the_read_of_the_others() -> None:
    source = Source(value=5)
    joined = JoinedRead(source.read)
    cancelled, stays = asyncio.create_task(joined.get()), asyncio.create_task(joined.get())
    await begun(source, 1)
    cancelled.cancel()
    source.released.set()
    assert await stays == 5
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_an_error_reaches_all_callers_and_the_next_read_is_a_new_one() -> None:
    source = Source(is_failing=True)
    source.released.set()
    joined = JoinedRead(source.read)
    found = await asyncio.gather(*(joined.get() for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, OSError) for each in found) and source.begun == 1
    source.is_failing = False
    assert await joined.get() == 0
