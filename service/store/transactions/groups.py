"""Group commit: requests that arrive while a transaction is in progress share the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Groups(Generic[ItemT, ResultT]):
    """Processes items in groups, one group after the other. An item that arrives alone does not wait for others.

    Args:
        process: processes a group; returns a result or an exception for each item, in their order. An exception that it
            raises is that of all items.
        most: largest number of items in a group.
    """

    def __init__(
        self, process: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT | Exception]]], most: int
    ) -> None:
        self._process, self._most = process, most
        self._waiting = deque[tuple[ItemT, asyncio.Future[ResultT]]]()
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: ItemT) -> ResultT:
        """Process an item with others; return its result, or raise its exception.

        If the caller is cancelled before its group begins, the item is left out. After that, it is processed anyway.
        """
        result = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
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
            while group := self._next():
                await self._process_group(group)
        finally:
            self._task = None
            for _, result in self._waiting:  # only if this task was cancelled
                result.cancel()
            self._waiting.clear()

    def _next(self) -> list[tuple[ItemT, asyncio.Future[ResultT]]]:
        group: list[tuple[ItemT, asyncio.Future[ResultT]]] = []
        while self._waiting and len(group) < self._most:
            item, result = self._waiting.popleft()
            if not result.done():
                group.append((item, result))
        return group

    async def _process_group(self, group: Sequence[tuple[ItemT, asyncio.Future[ResultT]]]) -> None:
        found: Sequence[ResultT | Exception]
        try:
            found = await self._process([item for item, _ in group])
        except Exception as error:
            found = [error] * len(group)
        except BaseException:
            for _, result in group:
                result.cancel()
            raise
        for (_, result), each in zip(group, found, strict=True):
            if result.done():
                continue
            if isinstance(each, Exception):
                result.set_exception(each)
            else:
                result.set_result(each)
