"""The public keys of an OpenID Connect issuer: discovered, cached, and read again when the issuer has rotated them."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import structlog
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.loopback import is_loopback_host

CACHED_S = 300.0
"""Time after which keys are read again."""
_RETRY_S = 10.0
"""Shortest time between two reads, so that unknown keys in forged tokens do not burden the issuer."""
_TIMEOUT_S = 5.0
_MAX_BYTES = 1_000_000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Read:
    keys: KeySet
    at_s: float
    """Monotonic seconds."""


class IssuerKeys:
    """Keys of one issuer (OpenID Connect Discovery 1.0, RFC 7517).

    Args:
        issuer: URL of the issuer; `https`, or `http` on loopback.
    """

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._read: _Read | None = None
        self._tried_s = float("-inf")
        self._reading = asyncio.Lock()

    async def keys_for(self, key_id: str | None) -> KeySet:
        """Return the keys, which contain the one with this id if the issuer has it.

        Raises:
            UnavailableError: the issuer does not answer, and no keys are known.
        """
        if (cached := self._cached(key_id)) is not None:
            return cached  # without the lock: a slow issuer delays only tokens with unknown keys
        async with self._reading:
            if (cached := self._cached(key_id)) is not None:
                return cached
            now_s = time.monotonic()
            if now_s - self._tried_s < _RETRY_S:
                if self._read is not None:
                    return self._read.keys
                raise UnavailableError(f"the issuer {self._issuer} did not answer; try again in {_RETRY_S:g} s")
            self._tried_s = now_s
            try:
                self._read = _Read(await self._fetch(), now_s)
            except (httpx2.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
                if self._read is None:
                    raise UnavailableError(f"the keys of the issuer {self._issuer} cannot be read: {error}") from error
                _log.warning("the keys of the issuer are kept, because it does not answer", error=str(error))
            return self._read.keys

    def _cached(self, key_id: str | None) -> KeySet | None:
        """Return the keys if they are fresh and have the one with this id."""
        read = self._read
        if read is None or time.monotonic() - read.at_s >= CACHED_S:
            return None
        return read.keys if key_id is None or any(key.kid == key_id for key in read.keys) else None

    async def _fetch(self) -> KeySet:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as http:
            found = await _get_json(http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            if found["issuer"] != self._issuer:
                raise ValueError(f"it calls itself {found['issuer']!r}")
            location = str(found["jwks_uri"])
            parts = urlsplit(location)
            if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
                raise ValueError(f"its keys are at {location}, without encryption")
            return KeySet.import_key_set(await _get_json(http, location))


async def _get_json(http: httpx2.AsyncClient, url: str) -> Any:
    answer = await http.get(url)
    answer.raise_for_status()
    if len(answer.content) > _MAX_BYTES:
        raise ValueError(f"{url} has more than {_MAX_BYTES:,} bytes")
    return answer.json()
