"""Conditions under which the changes of one request take effect.

A request may be a dry run, may depend on the state that its client saw (`If-Match`), and may have a key under which it
takes effect only once. `obeying` sets the conditions. `Database.write` and `record_change` obey them, so the operations
between need not pass them on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from regroup.service.domain.errors import PreconditionError
from regroup.service.domain.versions import is_match, job_versions_in

Reserve = Callable[[AsyncConnection], Awaitable[None]]
"""Reserves the key of the request in its transaction; raises if an earlier request has it."""


class WriteConditions:
    """Conditions of one request, from its start until its response is ready."""

    def __init__(self, reserve: Reserve | None = None) -> None:
        self.dry_run = False
        """True if nothing is stored. The request sees its own changes until it ends."""
        self.if_match: str | None = None
        """Value of `If-Match`; None accepts every state."""
        self._reserve = reserve
        self.is_reserved = False
        """True if the key of the request is in the database."""
        self._is_compared = self._is_ended = False
        self._trial: AsyncConnection | None = None
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    @property
    def is_in_force(self) -> bool:
        """False after the end of the request. A task that it started has its context for longer."""
        return not self._is_ended

    @property
    def has_effect(self) -> bool:
        """False if the request sets no condition, so that its changes can share a transaction with others."""
        return self.dry_run or self.if_match is not None or self._reserve is not None

    @property
    def has_trial(self) -> bool:
        """True once a dry run has changed something, so that it must read its own transaction."""
        return self._trial is not None and not self._is_ended

    async def begin(self, connection: AsyncConnection) -> None:
        """Reserve the key of the request in its first transaction."""
        if self._reserve is not None and not self.is_reserved:
            await self._reserve(connection)
            self.is_reserved = True

    def compare(self, name: str, etag: str | None) -> None:
        """Compare the state of an object before the first change of the request with `If-Match`.

        Args:
            name: name of the object, for people.
            etag: entity tag of the object; None if it does not exist.

        Raises:
            PreconditionError: the client saw another state.
        """
        if self.if_match is None or self._is_compared:
            return
        self._is_compared = True
        if not is_match(self.if_match, etag):
            state = "does not exist" if etag is None else "has changed since you read it"
            raise PreconditionError(f"{name} {state}: it does not match If-Match {self.if_match}; get it again")

    def compare_job(self, job_id: str, version: int) -> None:
        """Compare the version of a job as `compare` does. Its progress, which changes all the time, does not count."""
        if self.if_match is None or self._is_compared:
            return
        self._is_compared = True
        versions = job_versions_in(self.if_match)
        if versions is not None and version not in versions:
            raise PreconditionError(
                f"job {job_id} is at version {version}: it does not match If-Match {self.if_match}; get the job again"
            )

    @asynccontextmanager
    async def trial(self, engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
        """Open a part of the transaction that a dry run rolls back at its end."""
        async with self._alone():
            if self._trial is None:
                self._trial = await self._stack.enter_async_context(engine.connect())
                await self._trial.begin()
            async with self._trial.begin_nested():
                yield self._trial

    @asynccontextmanager
    async def trial_read(self) -> AsyncGenerator[AsyncConnection]:
        """Read in the transaction of a dry run, which sees its own changes."""
        assert self._trial is not None, "`has_trial` was checked"
        async with self._alone():
            yield self._trial

    async def end(self) -> None:
        """Roll a dry run back. Tasks that the request started are not bound by the conditions any more."""
        self._is_ended = True
        if self._trial is not None:
            await self._trial.rollback()
        await self._stack.aclose()

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Exclude other tasks of the request: a connection serves one task at a time."""
        if self._holder is asyncio.current_task():
            yield
            return
        async with self._lock:
            self._holder = asyncio.current_task()
            try:
                yield
            finally:
                self._holder = None


_CURRENT: ContextVar[WriteConditions | None] = ContextVar("conditions of the current request", default=None)


def current_conditions() -> WriteConditions | None:
    """Return the conditions of the request that this task serves; None without any."""
    found = _CURRENT.get()
    return found if found is not None and found.is_in_force else None


@asynccontextmanager
async def obeying(conditions: WriteConditions) -> AsyncGenerator[None]:
    """Let all writes of the block obey the conditions."""
    token = _CURRENT.set(conditions)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        await conditions.end()
