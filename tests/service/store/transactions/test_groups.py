"""Group commit: the items of a group, and the result of each item."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from regroup.service.store.transactions.groups import Groups

_REQUEST: ContextVar[str] = ContextVar("request of a test", default="none")


class Recorder:
    """Processes groups of numbers when the test permits it."""

    def __init__(self, most: int = 10) -> None:
        self.groups: list[list[int]] = []
        self.contexts: list[str] = []
        self.permitted = asyncio.Event()
        self.began = asyncio.Event()
        self.error: Exception | None = None
        self.all = Groups[int, str](self.process, most)

    async def process(self, items: Sequence[int]) -> list[str | Exception]:
        self.groups.append(list(items))
        self.contexts.append(_REQUEST.get())
        self.began.set()
        await self.permitted.wait()
        if self.error is not None:
            raise self.error
        return [ValueError(f"{item} is odd") if item % 2 else str(item) for item in items]

    async def add_all(self, *items: int) -> list[asyncio.Task[str]]:
        """Add items, the first of them before the others, and wait until its group has begun."""
        first = asyncio.create_task(self.all.add(items[0]))
        await self.began.wait()
        others = [asyncio.create_task(self.all.add(item)) for item in items[1:]]
        await asyncio.sleep(0)
        return [first, *others]


async def test_items_that_arrive_during_a_group_form_the_next_one() -> None:
    recorder = Recorder(most=3)
    tasks = await recorder.add_all(0, 2, 4, 6, 8)
    recorder.permitted.set()
    assert await asyncio.gather(*tasks) == ["0", "2", "4", "6", "8"]
    assert recorder.groups == [[0], [2, 4, 6], [8]]
    assert await recorder.all.add(10) == "10", "a later item begins another group"


async def test_each_item_has_its_own_result_or_error() -> None:
    recorder = Recorder()
    tasks = await recorder.add_all(0, 1, 2)
    recorder.permitted.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in results] == ["0", "1 is odd", "2"]


async def test_an_error_of_the_group_is_that_of_all_its_items() -> None:
    recorder = Recorder()
    recorder.error = OSError("no database")
    tasks = await recorder.add_all(0, 2)
    recorder.permitted.set()
    assert [str(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == ["no database"] * 2
    recorder.error = None
    assert await recorder.all.add(4) == "4"


async def test_a_cancelled_item_is_left_out_only_before_its_group_begins() -> None:
    recorder = Recorder()
    tasks = await recorder.add_all(0, 2, 4)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.sleep(0)
    recorder.permitted.set()
    assert await tasks[2] == "4"
    assert recorder.groups == [[0], [4]]
    assert tasks[0].cancelled() and tasks[1].cancelled()


async def test_finish_waits_for_all_items() -> None:
    recorder = Recorder()
    tasks = await recorder.add_all(0, 2)
    finishing = asyncio.create_task(recorder.all.finish())
    await asyncio.sleep(0)
    assert not finishing.done()
    recorder.permitted.set()
    await finishing
    assert all(task.done() or task.cancelling() == 0 for task in tasks) and recorder.groups == [[0], [2]]
    assert await asyncio.gather(*tasks) == ["0", "2"]
    await recorder.all.finish()


async def test_a_group_has_the_context_of_no_request() -> None:
    recorder = Recorder()
    recorder.permitted.set()
    _REQUEST.set("first")
    await recorder.all.add(0)
    assert recorder.contexts == ["none"]


async def test_items_end_if_their_processing_is_cancelled() -> None:
    recorder = Recorder()
    tasks = await recorder.add_all(0, 2)
    assert recorder.all._task is not None
    recorder.all._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]


async def test_items_that_may_wait_share_a_group() -> None:
    recorder = Recorder()
    recorder.permitted.set()
    held = [asyncio.create_task(recorder.all.add(item, 60.0)) for item in (0, 2)]
    await asyncio.sleep(0)
    assert recorder.groups == [], "both wait for others"
    assert await recorder.all.add(4) == "4", "an item that does not wait takes them along"
    assert await asyncio.gather(*held) == ["0", "2"] and recorder.groups == [[4, 0, 2]]


async def test_an_item_waits_no_longer_than_its_caller_permits() -> None:
    recorder = Recorder()
    recorder.permitted.set()
    held = asyncio.create_task(recorder.all.add(0, 60.0))
    await asyncio.sleep(0)
    assert recorder.groups == []
    assert await recorder.all.add(2, 0.02) == "2"
    assert await held == "0" and recorder.groups == [[0, 2]]


async def test_a_full_group_waits_for_nothing() -> None:
    recorder = Recorder(most=3)
    recorder.permitted.set()
    assert await asyncio.gather(*(recorder.all.add(item, 60.0) for item in (0, 2, 4))) == ["0", "2", "4"]
    assert recorder.groups == [[0, 2, 4]]


async def test_a_group_has_a_limited_weight() -> None:
    recorder = Recorder()
    recorder.all = Groups[int, str](recorder.process, 10, float, 10.0)
    tasks = await recorder.add_all(0, 4, 6, 2, 20, 2)
    recorder.permitted.set()
    await asyncio.gather(*tasks)
    assert recorder.groups == [[0], [4, 6], [2], [20], [2]], "an item that weighs more is alone"


async def test_finish_waits_for_items_that_wait_for_others() -> None:
    recorder = Recorder()
    recorder.permitted.set()
    held = asyncio.create_task(recorder.all.add(0, 0.02))
    await asyncio.sleep(0)
    await recorder.all.finish()
    assert await held == "0"


async def test_items_that_may_wait_come_after_the_others() -> None:
    recorder = Recorder(most=2)
    first = await recorder.add_all(0)
    patient = [asyncio.create_task(recorder.all.add(item, 60.0)) for item in (2, 4, 6)]
    await asyncio.sleep(0)
    prompt = [asyncio.create_task(recorder.all.add(item)) for item in (8, 10, 12)]
    await asyncio.sleep(0)
    recorder.permitted.set()
    await asyncio.gather(*first, *patient, *prompt)
    assert recorder.groups == [[0], [8, 10], [12, 2], [4, 6]]
