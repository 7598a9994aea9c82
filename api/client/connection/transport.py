"""Execute requests, operations, listings and streams over HTTP: blocking, and with asyncio."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any, Self, TypeVar

import httpx2

from regroup.api.client.connection.access_token import TokenAuth
from regroup.api.client.connection.conditions import Conditions
from regroup.api.client.connection.connection_options import ConnectionOptions
from regroup.api.client.connection.contact import Contact
from regroup.api.client.connection.errors import error_from
from regroup.api.client.connection.requests import (
    CONNECT_TIMEOUT_S,
    TIMEOUT_S,
    Effect,
    FileWork,
    Listing,
    Operation,
    Request,
    Retry,
    Sleep,
    send,
    send_with_retries,
)
from regroup.api.client.connection.streams import EventStream, ExecCall, ExecReader, Follower, connection_lost
from regroup.api.schemas.exec import ExecEvent

T = TypeVar("T")
_TIMEOUT = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)


class SyncTransport:
    """Blocks the calling thread."""

    def __init__(
        self,
        url: str,
        token: str | None,
        patience_s: float,
        options: ConnectionOptions,
        transport: httpx2.BaseTransport | None,
        contact: Contact | None = None,
    ) -> None:
        self._patience_s, self._contact, self._conditions = patience_s, contact, Conditions()
        self._http = httpx2.Client(
            base_url=options.base_url, auth=TokenAuth(url, token), timeout=_TIMEOUT,
            transport=transport or options.transport(), trust_env=False,
        )  # fmt: skip

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def under(self, conditions: Conditions) -> Self:
        """Return a transport with the same connections, whose requests have these conditions."""
        other = copy.copy(self)
        other._conditions = conditions
        return other

    @property
    def is_trial(self) -> bool:
        """True if its requests are dry runs."""
        return self._conditions.dry_run

    def run(self, operation: Request[T] | Operation[T]) -> T:
        """Execute a request, with retries, or an operation."""
        return self._drive(send(operation) if isinstance(operation, Request) else operation, self._send)

    def pages(self, listing: Listing[T]) -> Iterator[T]:
        """Yield all items of a listing."""
        cursor: str | None = listing.first_cursor
        while cursor is not None:
            page = self.run(listing.request_page(cursor))
            yield from page.items
            cursor = page.next_cursor

    def follow(self, stream: EventStream[T]) -> Iterator[T]:
        """Yield the items of a stream until its end. Reconnects."""
        follower = Follower(stream, self._patience_s, self._http.base_url, self._contact)
        with closing(follower):
            while True:
                reason: object = "the stream ended early"
                try:
                    with self._http.stream(**follower.connect_options()) as response:
                        if response.is_success:
                            for chunk in response.iter_bytes():
                                yield from follower.feed(chunk)
                                if follower.is_ended:
                                    return
                        else:
                            response.read()
                            reason = follower.check_refusal(response)
                except httpx2.TransportError as error:
                    reason = error
                time.sleep(follower.reconnect_delay_s(reason))

    def exec(self, call: ExecCall) -> Iterator[ExecEvent]:
        """Yield the events of a command until it exits."""
        reader = ExecReader()
        try:
            with self._http.stream(**call.connect_options()) as response:
                if not response.is_success:
                    response.read()
                    raise error_from(response)
                for chunk in response.iter_bytes():
                    yield from reader.feed(chunk)
                    if reader.is_ended:
                        return
        except httpx2.TransportError as error:
            raise connection_lost(error) from error
        raise connection_lost(None)

    def _send(self, request: Request[Any]) -> httpx2.Response:
        request = self._conditions.applied_to(request)
        attempts = send_with_retries(request, Retry(self._patience_s, self._contact), self._http.base_url)
        return self._drive(attempts, self._attempt)

    def _attempt(self, request: Request[Any]) -> httpx2.Response:
        return self._http.request(request.method, request.path, **request.options())

    def _drive(self, operation: Operation[T], respond: Callable[[Request[Any]], httpx2.Response]) -> T:
        with closing(operation):
            try:
                effect = next(operation)
                while True:
                    try:
                        result = self._perform(effect, respond)
                    except Exception as error:
                        effect = operation.throw(error)
                    else:
                        effect = operation.send(result)
            except StopIteration as end:
                return end.value

    def _perform(self, effect: Effect, respond: Callable[[Request[Any]], httpx2.Response]) -> Any:
        match effect:
            case Sleep(delay_s):
                return time.sleep(delay_s)
            case FileWork(call):
                return call()
            case Request():
                return respond(effect)


class AsyncTransport:
    """Suspends the calling task."""

    def __init__(
        self,
        url: str,
        token: str | None,
        patience_s: float,
        options: ConnectionOptions,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._patience_s, self._conditions = patience_s, Conditions()
        self._http = httpx2.AsyncClient(
            base_url=options.base_url, auth=TokenAuth(url, token), timeout=_TIMEOUT,
            transport=transport or options.async_transport(), trust_env=False,
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def under(self, conditions: Conditions) -> Self:
        """Return a transport with the same connections, whose requests have these conditions."""
        other = copy.copy(self)
        other._conditions = conditions
        return other

    @property
    def is_trial(self) -> bool:
        """True if its requests are dry runs."""
        return self._conditions.dry_run

    async def run(self, operation: Request[T] | Operation[T]) -> T:
        """Execute a request, with retries, or an operation."""
        return await self._drive(send(operation) if isinstance(operation, Request) else operation, self._send)

    async def pages(self, listing: Listing[T]) -> AsyncIterator[T]:
        """Yield all items of a listing."""
        cursor: str | None = listing.first_cursor
        while cursor is not None:
            page = await self.run(listing.request_page(cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor

    async def follow(self, stream: EventStream[T]) -> AsyncIterator[T]:
        """Yield the items of a stream until its end. Reconnects."""
        follower = Follower(stream, self._patience_s, self._http.base_url)
        while True:
            reason: object = "the stream ended early"
            try:
                async with self._http.stream(**follower.connect_options()) as response:
                    if response.is_success:
                        async for chunk in response.aiter_bytes():
                            for item in follower.feed(chunk):
                                yield item
                            if follower.is_ended:
                                return
                    else:
                        await response.aread()
                        reason = follower.check_refusal(response)
            except httpx2.TransportError as error:
                reason = error
            await asyncio.sleep(follower.reconnect_delay_s(reason))

    async def exec(self, call: ExecCall) -> AsyncIterator[ExecEvent]:
        """Yield the events of a command until it exits."""
        reader = ExecReader()
        try:
            async with self._http.stream(**call.connect_options()) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_from(response)
                async for chunk in response.aiter_bytes():
                    for event in reader.feed(chunk):
                        yield event
                    if reader.is_ended:
                        return
        except httpx2.TransportError as error:
            raise connection_lost(error) from error
        raise connection_lost(None)

    async def _send(self, request: Request[Any]) -> httpx2.Response:
        request = self._conditions.applied_to(request)
        attempts = send_with_retries(request, Retry(self._patience_s), self._http.base_url)
        return await self._drive(attempts, self._attempt)

    async def _attempt(self, request: Request[Any]) -> httpx2.Response:
        return await self._http.request(request.method, request.path, **request.options())

    async def _drive(
        self, operation: Operation[T], respond: Callable[[Request[Any]], Coroutine[Any, Any, httpx2.Response]]
    ) -> T:
        with closing(operation):
            try:
                effect = next(operation)
                while True:
                    try:
                        result = await self._perform(effect, respond)
                    except Exception as error:
                        effect = operation.throw(error)
                    else:
                        effect = operation.send(result)
            except StopIteration as end:
                return end.value

    async def _perform(
        self, effect: Effect, respond: Callable[[Request[Any]], Coroutine[Any, Any, httpx2.Response]]
    ) -> Any:
        match effect:
            case Sleep(delay_s):
                return await asyncio.sleep(delay_s)
            case FileWork(call):
                return await asyncio.to_thread(call)
            case Request():
                return await respond(effect)
