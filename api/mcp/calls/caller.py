"""The caller of a tool: its client of the API, with its own token, and the conditions of a change."""

import dataclasses
import hashlib
from dataclasses import dataclass, field

from regroup.api.client.async_client import AsyncClient
from regroup.api.mcp.calls.confirmation import Confirmations


@dataclass(frozen=True)
class Caller:
    """The sender of a request to a tool. The API decides about its permissions."""

    client: AsyncClient
    """Client with the token of the caller. For a change it has the conditions of the request."""
    fingerprint: str
    """Digest of its token: a confirm value of one caller is none of another."""
    confirmations: Confirmations
    is_dry_run: bool = False
    """True for the preview of a change."""
    state: str = ""
    """State that the preview was made from; empty for tools that read, and for objects that do not exist."""
    key: str | None = field(default=None)
    """Key under which the request takes effect once."""

    def previewing(self, state: str) -> "Caller":
        """Return the caller for a preview of a change to an object in this state."""
        return dataclasses.replace(
            self, client=self.client.under(dry_run=True, if_match=_tag(state)), is_dry_run=True, state=state
        )

    def changing(self, state: str, key: str) -> "Caller":
        """Return the caller for a change of an object in this state."""
        client = self.client.under(if_match=_tag(state), idempotency_key=key)
        return dataclasses.replace(self, client=client, state=state, key=key)

    def for_part(self, name: str, etag: str) -> AsyncClient:
        """Return the client for one of several objects that a tool changes."""
        key = None if self.key is None else f"{self.key}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        return self.client.under(dry_run=self.is_dry_run, if_match=_tag(etag), idempotency_key=key)


def _tag(state: str) -> str | None:
    """Return the value of `If-Match` for a state; None if the state has no entity tag."""
    return state if state.startswith('"') else None
