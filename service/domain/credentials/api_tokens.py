"""The format of tokens: `rg_ID_SECRET`. The id finds the token, and the secret proves it.

The prefix lets scanners of source code recognize a token. Only the digest of the secret is stored.
"""

import re
from dataclasses import dataclass, field

from regroup.service.domain.credentials.random_secrets import (
    ID_PATTERN,
    SECRET_PATTERN,
    digest_of,
    generate_id,
    generate_secret,
)

_PREFIX = "rg"
_FORM = re.compile(rf"{_PREFIX}_({ID_PATTERN})_({SECRET_PATTERN})")


@dataclass(frozen=True)
class TokenParts:
    """The two parts of a token."""

    id: str
    secret: str = field(repr=False)

    @property
    def value(self) -> str:
        """The whole token."""
        return f"{_PREFIX}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        """SHA-256 of the secret, in hexadecimal digits."""
        return digest_of(self.secret)


def generate_token() -> TokenParts:
    """Return a new random token."""
    return TokenParts(generate_id(), generate_secret())


def parse_token(value: str) -> TokenParts | None:
    """Return the parts of a token; None if the text is not one."""
    match = _FORM.fullmatch(value)
    return None if match is None else TokenParts(match[1], match[2])
