"""Values that confirm a change: each belongs to one request, as its preview showed it.

A confirm value proves that this server showed a preview of the same tool, with the same arguments, to the same caller,
a short time ago. It names the state that the preview was made from. It is signed with a key of this process: only a
preview has one.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import ConflictError

VALID_S = 900.0
"""Time for which a confirm value is accepted."""
MAX_CHARACTERS = 400
"""Longest confirm value."""
_SIGNATURE_BYTES = 15
_NONCE_BYTES = 9


@dataclass(frozen=True)
class Confirmation:
    """The content of a confirm value."""

    nonce: str
    """Random text. It makes the key under which the request takes effect once."""
    expires_s: int
    """Time until which it is accepted, Unix seconds."""
    state: str
    """State of the object that the preview was made from: its entity tag, or a digest of several."""

    @property
    def idempotency_key(self) -> str:
        """Key of the request."""
        return f"mcp-{self.nonce}"


class Confirmations:
    """Makes and checks confirm values."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def issue(self, request: Mapping[str, Any], state: str, now_s: float | None = None) -> tuple[str, Confirmation]:
        """Return a confirm value, and its content.

        Args:
            request: the tool, its arguments and the caller, as plain data.
            state: state of the object that the preview was made from.
            now_s: present time; default: that of the clock.
        """
        expires_s = int((time.time() if now_s is None else now_s) + VALID_S)
        found = Confirmation(secrets.token_urlsafe(_NONCE_BYTES), expires_s, state)
        content = _encode(json.dumps([found.nonce, found.expires_s, found.state], separators=(",", ":")).encode())
        return f"{content}.{self._sign(content, request)}", found

    def check(self, value: str, request: Mapping[str, Any], now_s: float | None = None) -> Confirmation:
        """Return the content of a confirm value.

        Raises:
            ConflictError: this server did not make it for this request, or it has expired.
        """
        content, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(content, request).encode()):
            raise ConflictError(
                "the value of `confirm` does not belong to this request: another tool, other arguments or another "
                "caller, or the MCP server has restarted; call the tool without `confirm` for a new preview"
            )
        nonce, expires_s, state = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        if (time.time() if now_s is None else now_s) > expires_s:
            raise ConflictError(
                f"the value of `confirm` has expired: it is accepted for {VALID_S / 60:.0f} minutes; call the tool "
                "without `confirm` for a new preview"
            )
        return Confirmation(nonce, expires_s, state)

    def _sign(self, content: str, request: Mapping[str, Any]) -> str:
        text = json.dumps([content, request], sort_keys=True, separators=(",", ":"))
        return _encode(hmac.digest(self._key, text.encode(errors="surrogatepass"), "sha256")[:_SIGNATURE_BYTES])


def digest_of(states: Mapping[str, str]) -> str:
    """Return the digest of the states of several objects."""
    return hashlib.sha256(json.dumps(sorted(states.items())).encode()).hexdigest()[:20]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
