"""Group commit: requests that arrive while a transaction is in progress share the next one."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class _Waiting(Generic[ItemT, ResultT]):
    item: ItemT
    result: asyncio.Future[ResultT]
    due_s: float
    """Time of the event loop at which its group begins at the latest, unless another is in progress."""


class Groups(Generic[ItemT, ResultT]):
    """Processes items in groups, one group after the other. An item that arrives alone waits for no others, unless its
    caller permits it. When there are more items than a group takes, those that may wait come last.

    Args:
        process: processes a group; returns a result or an exception for each item, in their order. An exception that it
            raises is that of all items.
        most: largest number of items in a group.
        weigh: returns the weight of an item.
        most_weight: largest weight of a group of several items.
    """

    def __init__(
        self,
        process: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT | Exception]]],
        most: int,
        weigh: Callable[[ItemT], float] = lambda _: 0.0,
        most_weight: float = 0.0,
    ) -> None:
        self._process, self._most = process, most
        self._weigh, self._most_weight = weigh, most_weight
        self._prompt, self._patient = deque[_Waiting[ItemT, ResultT]](), deque[_Waiting[ItemT, ResultT]]()
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: ItemT, delay_s: float = 0.0) -> ResultT:
        """Process an item with others; return its result, or raise its exception.

        If the caller is cancelled before its group begins, the item is left out. After that, it is processed anyway.

        Args:
            delay_s: longest time to wait for other items. One that does not wait takes those that wait along.
        """
        loop = asyncio.get_running_loop()
        result = loop.create_future()
        waiting = self._patient if delay_s > 0 else self._prompt
        waiting.append(_Waiting(item, result, loop.time() + delay_s))
        self._more.set()
        if self._task is None:
            # An empty context: the group belongs to no single request.
            self._task = asyncio.create_task(self._run(), context=Context())
        return await result

    async def finish(self) -> None:
        """Wait until all items are processed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._prompt or self._patient:
                await self._wait_until_due()
                if group := self._next():
                    await self._process_group(group)
        finally:
            self._task = None
            for waiting in (self._prompt, self._patient):
                for each in waiting:  # only if this task was cancelled
                    each.result.cancel()
                waiting.clear()

    async def _wait_until_due(self) -> None:
        """Wait until an item must not wait longer, or a group is full."""
        loop = asyncio.get_running_loop()
        while not self._prompt and len(self._patient) < self._most:
            self._more.clear()
            left_s = min(each.due_s for each in self._patient) - loop.time()
            if left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._more.wait()

    def _next(self) -> list[_Waiting[ItemT, ResultT]]:
        group, weight = list[_Waiting[ItemT, ResultT]](), 0.0
        while len(group) < self._most and (waiting := self._prompt or self._patient):
            weight += self._weigh(waiting[0].item)
            if group and weight > self._most_weight > 0:
                break
            found = waiting.popleft()
            if not found.result.done():
                group.append(found)
        return group

    async def _process_group(self, group: Sequence[_Waiting[ItemT, ResultT]]) -> None:
        found: Sequence[ResultT | Exception]
        try:
            found = await self._process([each.item for each in group])
        except Exception as error:
            found = [error] * len(group)
        except BaseException:
            for each in group:
                each.result.cancel()
            raise
        for waiting, outcome in zip(group, found, strict=True):
            if waiting.result.done():
                continue
            if isinstance(outcome, Exception):
                waiting.result.set_exception(outcome)
            else:
                waiting.result.set_result(outcome)
