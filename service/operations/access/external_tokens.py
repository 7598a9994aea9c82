"""Authentication with tokens of other systems: JWTs of an OpenID Connect issuer, and Kubernetes service accounts."""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import JoseError

from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import Identity, IdentityKind
from regroup.service.domain.reserved_names import is_reserved
from regroup.service.operations.access.issuer_keys import IssuerKeys
from regroup.service.operations.access.token_review import TokenReview
from regroup.service.policy.access.external import ClaimRules, ExternalSubject, identity_of_subject, read_claims
from regroup.service.store.store import Store

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signatures: asymmetric ones only."""
MAX_TOKEN_CHARACTERS = 16_384
_CACHED_S = 2.0
_MAX_CACHED = 10_000


@dataclass(frozen=True)
class _Cached:
    identity: Identity
    until_s: float
    """Monotonic seconds."""


class ExternalTokens:
    """Identities of tokens that other systems issue.

    Args:
        rules: rules of the OpenID Connect issuer; None for none.
        review: Kubernetes cluster whose service accounts are accepted; None for none.
        clock: Unix seconds.
    """

    def __init__(
        self, store: Store, rules: ClaimRules | None, review: TokenReview | None, clock: Callable[[], float]
    ) -> None:
        self._store, self._rules, self._review, self._clock = store, rules, review, clock
        self._keys = None if rules is None else IssuerKeys(rules.issuer)
        self._cached: dict[str, _Cached] = {}

    @property
    def is_enabled(self) -> bool:
        """True if another system's tokens are accepted."""
        return self._rules is not None or self._review is not None

    async def identify(self, value: str) -> Identity:
        """Return the identity of a token.

        Raises:
            UnauthorizedError: no accepted system issued the token for this server, or its identity is disabled.
            UnavailableError: the issuer, the cluster or the database does not answer.
        """
        if len(value) > MAX_TOKEN_CHARACTERS:
            raise UnauthorizedError(f"the token has more than {MAX_TOKEN_CHARACTERS:,} characters")
        header, issuer = _peek(value)
        rules, keys = self._rules, self._keys
        if rules is not None and keys is not None and (issuer == rules.issuer or self._review is None):
            return await self._resolve(value, lambda: _verify(value, header, keys, rules, self._clock()))
        if self._review is None:
            raise UnauthorizedError("the token is not one of this server")
        review = self._review
        return await self._resolve(value, lambda: review.identify(value))

    async def identity_of(self, name: str, groups: frozenset[str]) -> Identity:
        """Return the identity of a person who signed in before with these groups.

        Raises:
            UnauthorizedError: this server accepts no identity provider any more, or the identity is disabled.
            UnavailableError: the database does not answer.
        """
        rules = self._rules
        if rules is None:
            raise UnauthorizedError("this server accepts no identity provider any more; sign in in another way")
        subject = ExternalSubject(name, groups, bool(rules.operator_groups & groups))

        async def signed_in() -> ExternalSubject:
            return subject

        return await self._resolve(json.dumps([name, sorted(groups)]), signed_in)

    def forget(self) -> None:
        """Verify all tokens again at their next use, because an identity or a membership was changed."""
        self._cached = {}  # a request that is being verified writes to the former one

    async def _resolve(self, value: str, verify: Callable[[], Awaitable[ExternalSubject]]) -> Identity:
        """Return the identity of a token, which is verified again after two seconds, or after `forget`."""
        key, now_s, cache = hashlib.sha256(value.encode()).hexdigest(), time.monotonic(), self._cached
        if (cached := cache.get(key)) is not None and cached.until_s > now_s:
            return cached.identity
        subject = await verify()
        identity = await self._identity_of(subject)
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        cache[key] = _Cached(identity, now_s + _CACHED_S)
        return identity

    async def _identity_of(self, subject: ExternalSubject) -> Identity:
        if is_reserved(subject.name):
            raise UnauthorizedError(f"the name {subject.name!r} is reserved")
        row, members = await self._store.identities.external(subject.name, subject.members)
        if row is not None and row.kind is IdentityKind.SERVICE_ACCOUNT and subject.kind is not row.kind:
            raise UnauthorizedError(f"{subject.name!r} is a service account of this server; it has tokens of its own")
        if row is not None and row.disabled_at is not None:
            raise UnauthorizedError(f"identity {row.subject!r} is disabled; ask an operator of this server")
        return identity_of_subject(
            subject,
            [(member.project, member.membership) for member in members],
            is_operator=row is not None and row.is_operator,
            permissions=frozenset() if row is None else row.permissions,
        )


def _peek(value: str) -> tuple[dict[str, Any], str | None]:
    """Return the header and the issuer of a JWT without a check, to choose who checks it."""
    try:
        token = jws.extract_compact(value.encode())
        header, issuer = dict(token.headers()), json.loads(token.payload or b"").get("iss")
    except (JoseError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UnauthorizedError("the token is not one of this server") from error
    return header, issuer if isinstance(issuer, str) else None


async def _verify(
    value: str, header: dict[str, Any], keys: IssuerKeys, rules: ClaimRules, now: float
) -> ExternalSubject:
    key_id = header.get("kid")
    found = await keys.keys_for(key_id if isinstance(key_id, str) else None)
    try:
        token = jwt.decode(value, found, algorithms=list(ALGORITHMS))
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise UnauthorizedError(f"the signature of the token is not valid: {error}") from error
    return read_claims(token.claims, rules, now)
