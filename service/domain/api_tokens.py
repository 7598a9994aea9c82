"""The format of tokens: `rg_ID_SECRET`. The id finds the token, and the secret proves it.

The prefix lets scanners of source code recognize a token. Only the SHA-256 of the secret is stored; a secret has 256
random bits, so a slow hash would add nothing.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

_PREFIX = "rg"
_ID_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 12
_SECRET_BYTES = 32
_FORM = re.compile(rf"{_PREFIX}_([{_ID_DIGITS}]{{{_ID_LENGTH}}})_([A-Za-z0-9_-]{{43}})")


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
        return hashlib.sha256(self.secret.encode()).hexdigest()


def generate_token() -> TokenParts:
    """Return a new random token."""
    token_id = "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))
    return TokenParts(token_id, secrets.token_urlsafe(_SECRET_BYTES))


def parse_token(value: str) -> TokenParts | None:
    """Return the parts of a token; None if the text is not one."""
    match = _FORM.fullmatch(value)
    return None if match is None else TokenParts(match[1], match[2])


def has_digest(token: TokenParts, digest: str) -> bool:
    """Return True if the secret has this digest. Takes the same time for every wrong secret."""
    return hmac.compare_digest(token.digest, digest)
