"""Signatures of notifications, as the Standard Webhooks specification 1.0 defines them.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

_PREFIX = "whsec_"
_SECRET_BYTES = 32
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""Sizes of a key that the specification allows."""
SECRET_FORM = f"whsec_ and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in Base64"
"""Form of a secret, for messages."""


def generate_secret() -> str:
    """Return a new random secret: `whsec_` and 256 bits in Base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def is_secret(value: str) -> bool:
    """Return True for a secret in the form of the specification: `whsec_` and 24 to 64 bytes in Base64."""
    try:
        key = base64.b64decode(value.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return False
    is_canonical = value == _PREFIX + base64.b64encode(key).decode()  # the decoder accepts other spellings, too
    return is_canonical and MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES


def sign(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the signature of one secret: `v1,` and the HMAC-SHA256 of `id.timestamp.body` in Base64."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    digest = hmac.new(key, f"{message_id}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signature_headers(keys: Sequence[str], message_id: str, timestamp_s: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of a signed notification.

    Args:
        keys: the secrets. There are two while a rotation lasts, and a receiver accepts either.
        message_id: unique name of the message, the same in all attempts.
        timestamp_s: time of this attempt, Unix seconds. Receivers refuse old ones.
        body: the bytes that are sent.
    """
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(sign(key, message_id, timestamp_s, body) for key in keys),
    }
