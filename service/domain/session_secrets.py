"""The secrets of a browser's session: a cookie, and a proof that pages of the server send in addition.

A browser sends a cookie to every port of a host, so another user of the machine may read it. A page keeps the proof in
the storage of its origin, which includes the port. Only digests of both are stored.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

SESSION_PREFIX = "ses_"
"""Begins the id of a session."""
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 12
_SECRET_BYTES = 32
_COOKIE = re.compile(rf"({SESSION_PREFIX}[{_DIGITS}]{{{_ID_LENGTH}}})\.([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True)
class SessionCookie:
    """The parts of a cookie."""

    id: str
    secret: str = field(repr=False)

    @property
    def value(self) -> str:
        """The value of the cookie."""
        return f"{self.id}.{self.secret}"


def generate_cookie() -> SessionCookie:
    """Return a new random cookie."""
    digits = "".join(secrets.choice(_DIGITS) for _ in range(_ID_LENGTH))
    return SessionCookie(SESSION_PREFIX + digits, generate_secret())


def generate_secret() -> str:
    """Return a new random text of 256 bits, which can be a part of a URL."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def parse_cookie(value: str) -> SessionCookie | None:
    """Return the parts of a cookie; None if the text is not one."""
    match = _COOKIE.fullmatch(value)
    return None if match is None else SessionCookie(match[1], match[2])


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret, in hexadecimal digits."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def has_digest(secret: str, digest: str) -> bool:
    """Return True if the secret has this digest. Takes the same time for every wrong secret."""
    return hmac.compare_digest(digest_of(secret), digest)
