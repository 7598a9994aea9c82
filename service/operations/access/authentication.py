"""Authentication: from the token of a request to its identity."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from regroup.service.domain.credentials.api_tokens import parse_token
from regroup.service.domain.credentials.random_secrets import has_digest
from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import Identity, Role
from regroup.service.policy.access.decision import restrict
from regroup.service.store.rows.identity_rows import StoredToken
from regroup.service.store.store import Store

CACHED_S = 2.0
"""Time for which a revoked token may be valid on other servers. On the server that revokes it, it ends at once."""
_USE_INTERVAL_S = 60.0
_MAX_CACHED = 10_000


@dataclass(frozen=True)
class _Cached:
    stored: StoredToken
    until_s: float
    """Monotonic seconds."""


class Authentication:
    """Identities of tokens.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._cached: dict[str, _Cached] = {}

    async def identify(self, value: str) -> Identity:
        """Return the identity of a token, and record that it was used.

        Raises:
            UnauthorizedError: the token is unknown, revoked or expired, or its identity is disabled.
            UnavailableError: the database does not answer.
        """
        token = parse_token(value)
        stored = None if token is None else await self._find(token.id)
        if token is None or stored is None or not has_digest(token.secret, stored.token.digest):
            raise UnauthorizedError("the token is not one of this server")
        return identity_of(stored, self._clock())

    async def identity_of_token(self, token_id: str) -> Identity:
        """Return the identity of a token that was proven before. Raises the errors of `identify`."""
        stored = await self._find(token_id)
        if stored is None:
            raise UnauthorizedError(f"token {token_id} does not exist any more")
        return identity_of(stored, self._clock())

    def forget(self) -> None:
        """Read all tokens again at their next use, because one was changed."""
        self._cached = {}  # a request that is reading its token writes to the former one

    async def _find(self, token_id: str) -> StoredToken | None:
        now_s, cache = time.monotonic(), self._cached
        cached = cache.get(token_id)
        if cached is not None and cached.until_s > now_s:
            return cached.stored
        stored = await self._store.identities.stored_token(token_id)
        if stored is None:
            cache.pop(token_id, None)
            return None
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        cache[token_id] = _Cached(stored, now_s + CACHED_S)
        used_at, now = stored.token.used_at, self._clock()
        if used_at is None or now - used_at >= _USE_INTERVAL_S:
            await self._store.identities.record_uses({token_id: now})
        return stored


def identity_of(stored: StoredToken, now: float) -> Identity:
    """Return the identity that a token proves, limited as the token is. Pure.

    Raises:
        UnauthorizedError: the token is revoked or expired, or its identity is disabled.
    """
    token, row = stored.token, stored.identity
    if row.disabled_at is not None:
        raise UnauthorizedError(f"identity {row.subject!r} is disabled; ask an operator of this server")
    if token.revoked_at is not None:
        raise UnauthorizedError(f"token {token.id} is revoked; create another with `regroup token create`")
    if token.expires_at is not None and token.expires_at <= now:
        raise UnauthorizedError(f"token {token.id} has expired; create another with `regroup token create`")
    identity = Identity(
        row.subject,
        row.kind,
        {member.project: member.membership for member in stored.members},
        everywhere=Role.ADMIN if row.is_operator else None,
        is_operator=row.is_operator,
        permissions=row.permissions,
        token_id=token.id,
    )
    return restrict(identity, token.project, token.role)
