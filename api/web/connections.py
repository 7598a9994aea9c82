"""Time limits of connections. uvicorn has one for idle connections after a response, and none for the cases below."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from regroup.service.settings import Settings

_REASON = b"the headers of the request did not arrive in time\n"
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_REASON), _REASON)
)


class LimitedConnection(H11Protocol):
    """A connection that is closed if the headers of a request do not arrive, or if the client does not read."""

    header_timeout_s = 15.0
    write_timeout_s = 60.0

    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_timers()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_headers(self) -> None:
        """Run the timer while a request is incomplete. More bytes do not restart it."""
        is_waiting = not self.cycle or self.cycle.response_complete  # there is none before the first request
        if not is_waiting or self.transport.is_closing():
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout_s, self._close_late)

    def _close_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_LATE)
            self.transport.close()

    def _stop_timers(self) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()


def connection_class(settings: Settings) -> type[LimitedConnection]:
    """Return the class of connections with the limits of the settings, for uvicorn's `http`."""
    limits = {"header_timeout_s": settings.header_timeout_s, "write_timeout_s": settings.write_timeout_s}
    return type("LimitedConnection", (LimitedConnection,), limits)
