"""The secrets of a browser's session: a cookie, and a proof that pages of the server send in addition.

A browser sends a cookie to every port of a host, so another user of the machine may read it. A page keeps the proof in
the storage of its origin, which includes the port. Only digests of both are stored.
"""

import re
from dataclasses import dataclass, field

from regroup.service.domain.credentials.random_secrets import ID_PATTERN, SECRET_PATTERN, generate_id, generate_secret

SESSION_PREFIX = "ses_"
"""Begins the id of a session."""
_COOKIE = re.compile(rf"({SESSION_PREFIX}{ID_PATTERN})\.({SECRET_PATTERN})")


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
    return SessionCookie(SESSION_PREFIX + generate_id(), generate_secret())


def parse_cookie(value: str) -> SessionCookie | None:
    """Return the parts of a cookie; None if the text is not one."""
    match = _COOKIE.fullmatch(value)
    return None if match is None else SessionCookie(match[1], match[2])
