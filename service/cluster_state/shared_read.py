"""One result for all that read the same state: after a change, many open pages do so at once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from regroup.service.store.jobs.state_version import StateVersion

KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")
VALID_S = 1.0
"""Age of a result after which it is read again: the state of a cluster has no version."""
_MOST_KEYS = 64


@dataclass(frozen=True)
class _Result(Generic[ResultT]):
    version: StateVersion
    at_s: float
    value: ResultT


class SharedRead(Generic[KeyT, ResultT]):
    """A read whose result serves all callers until the state changes, for at most a second.

    Args:
        version: returns the version of the state. It is read before the state, so that no result is older than it.
        read: reads and computes the result for a key.
        clock: seconds.
    """

    def __init__(
        self,
        version: Callable[[], Awaitable[StateVersion]],
        read: Callable[[KeyT], Awaitable[ResultT]],
        clock: Callable[[], float],
    ) -> None:
        self._version, self._read, self._clock = version, read, clock
        self._results: dict[KeyT, _Result[ResultT]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, key: KeyT) -> ResultT:
        """Return the result for a key."""
        async with self._one_at_a_time:
            version, now_s = await self._version(), self._clock()
            found = self._results.get(key)
            if found is not None and found.version == version and 0 <= now_s - found.at_s < VALID_S:
                return found.value
            value = await self._read(key)
            if len(self._results) >= _MOST_KEYS:
                self._results.clear()
            self._results[key] = _Result(version, now_s, value)
            return value
