"""Time limits of connections. uvicorn has one for idle connections after a response, and none for the cases below."""

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import TypeAlias, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from regroup.service.settings import Settings

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_REASON = b"the headers of the request did not arrive in time\n"
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_REASON), _REASON)
)


_ELSEWHERE = b"this server accepts requests from its proxy only\n"
_FOREIGN = (
    b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_ELSEWHERE), _ELSEWHERE)
)


class LimitedConnection(H11Protocol):
    """A connection that is closed if the headers of a request do not arrive, or if the client does not read."""

    header_timeout_s = 15.0
    write_timeout_s = 60.0
    peers: tuple[Network, ...] | None = None
    """Networks of the peers that may connect, in addition to this machine; None for all."""

    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if not _is_allowed(peer, self.peers):
            transport.write(_FOREIGN)
            transport.close()
            return
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
    peers = tuple(ipaddress.ip_network(each) for each in settings.proxy_addresses) if settings.behind_proxy else None
    limits = {"header_timeout_s": settings.header_timeout_s, "write_timeout_s": settings.write_timeout_s}
    return type("LimitedConnection", (LimitedConnection,), {**limits, "peers": peers})


def _is_allowed(peer: object, networks: Sequence[Network] | None) -> bool:
    """Return True for a connection through a Unix socket, from this machine, or from one of the networks."""
    if networks is None or not isinstance(peer, tuple):
        return True
    address = ipaddress.ip_address(str(cast(tuple[object, ...], peer)[0]).partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or address  # a socket for IPv6 may accept IPv4, too
    return mapped.is_loopback or any(mapped in network for network in networks)
