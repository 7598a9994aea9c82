"""One result for all that read the same state: after a change, many open pages do so at once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from regroup.service.cluster_state.joined_read import JoinedRead
from regroup.service.store.jobs.state_version import StateVersion

KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")
VALID_S = 1.0
"""Age of a result after which it is read again: the state of a cluster has no version."""
_MOST_KEYS = 64


@dataclass(frozen=True)
class _Seen:
    """A version of the state, and when it was read."""

    version: StateVersion
    number: int
    """Place of this read among all reads of the version."""


@dataclass(frozen=True)
class _Result(Generic[ResultT]):
    seen: _Seen
    at_s: float
    value: ResultT


class SharedRead(Generic[KeyT, ResultT]):
    """A read whose result serves all callers until the state changes, for at most a second.

    Callers that wait at the same time share one read of the version, too. While nothing changes, all of them get the
    same object.

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
        self._seen = JoinedRead(self._inspect)
        self._count = 0
        self._results: dict[KeyT, _Result[ResultT]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, key: KeyT) -> ResultT:
        """Return the result for a key."""
        seen = await self._seen.get()
        async with self._one_at_a_time:
            now_s, found = self._clock(), self._results.get(key)
            if found is not None and 0 <= now_s - found.at_s < VALID_S and _is_of(found.seen, seen):
                return found.value
            value = await self._read(key)
            if len(self._results) >= _MOST_KEYS:
                self._results.clear()
            self._results[key] = _Result(seen, now_s, value)
            return value

    async def _inspect(self) -> _Seen:
        self._count += 1
        return _Seen(number=self._count, version=await self._version())


def _is_of(result: _Seen, now: _Seen) -> bool:
    """Return True if nothing changed between the two, or if the result is even newer."""
    return result.version == now.version or result.number > now.number
