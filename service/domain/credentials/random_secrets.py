"""Random ids and secrets. An id finds an object; a secret proves something, and only its digest is stored.

A secret has 256 random bits, so a slow hash would add nothing.
"""

import hashlib
import hmac
import secrets

DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Characters of ids: digits and lower-case letters without i, l, o and u, which people misread."""
_ID_LENGTH = 12
ID_PATTERN = f"[{DIGITS}]{{{_ID_LENGTH}}}"
"""Regular expression of a random id."""
SECRET_PATTERN = "[A-Za-z0-9_-]{43}"
"""Regular expression of a secret."""
_SECRET_BYTES = 32


def generate_id() -> str:
    """Return a new random id of 60 bits, without a prefix."""
    return "".join(secrets.choice(DIGITS) for _ in range(_ID_LENGTH))


def generate_secret() -> str:
    """Return a new random text of 256 bits, which can be a part of a URL."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret, in hexadecimal digits."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def has_digest(secret: str, digest: str) -> bool:
    """Return True if the secret has this digest. Takes the same time for every wrong secret."""
    return hmac.compare_digest(digest_of(secret), digest)
