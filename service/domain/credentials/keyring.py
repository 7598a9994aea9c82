"""Encryption of stored secrets: AES-256-GCM with a keyring. The first key encrypts, and all keys decrypt.

An encrypted value is bound to its owner, so that a row with the value of another row is refused. Its text begins with
the id of its key: `v1.KEY_ID.BASE64`.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from regroup.service.domain.errors import ConflictError

KEY_BYTES = 32
MAX_KEYS = 20
"""Number of keys of a keyring."""
KEY_ID_DIGITS = 16
"""Length of the id of a key."""
_VERSION = "v1"
_NONCE_BYTES = 12
_ID_CONTEXT = b"regroup secrets key id\0"


class KeyringError(ConflictError):
    """A stored secret cannot be encrypted or decrypted: the key is missing or unreadable, or the value was changed."""


@dataclass(frozen=True)
class Owner:
    """The object that a secret belongs to. A value decrypts only for its owner."""

    kind: str
    """`secret` or `hook`."""
    project: str
    name: str
    """Name of the secret, or id of the hook."""
    version: int = 0

    @property
    def associated_data(self) -> bytes:
        """The owner as the bytes that are authenticated together with the value."""
        return json.dumps([_VERSION, self.kind, self.project, self.name, self.version]).encode()

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of project {self.project!r}"


@dataclass(frozen=True)
class Key:
    """A key of 256 bits."""

    id: str
    """Beginning of a digest of the key. It does not reveal the key, which is random."""
    material: bytes = field(repr=False)

    @classmethod
    def of(cls, material: bytes) -> "Key":
        """Return the key with these bytes; raises ValueError if they are too few or too many."""
        if len(material) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        return cls(hashlib.sha256(_ID_CONTEXT + material).hexdigest()[:KEY_ID_DIGITS], material)


@dataclass(frozen=True)
class Keyring:
    """The keys of a server, the newest first."""

    keys: tuple[Key, ...]
    """At least one."""
    source: str
    """Setting or file that has the keys, for messages."""

    @property
    def current(self) -> Key:
        """The key that encrypts."""
        return self.keys[0]

    def seal(self, value: str, owner: Owner) -> str:
        """Return the encrypted value."""
        nonce, key = os.urandom(_NONCE_BYTES), self.current
        sealed = nonce + AESGCM(key.material).encrypt(nonce, value.encode(), owner.associated_data)
        return f"{_VERSION}.{key.id}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, sealed: str, owner: Owner) -> str:
        """Return the value.

        Raises:
            KeyringError: the server does not have the key, or the value is damaged or belongs to another owner.
        """
        key_id = key_id_of(sealed)
        key = next((each for each in self.keys if each.id == key_id), None)
        if key is None:
            raise KeyringError(
                f"the {owner} is encrypted with the key {key_id}, which the server does not have; add this key to "
                f"{self.source}, or set the secret again"
            )
        try:
            data = _decode(sealed.split(".")[2])
            value = AESGCM(key.material).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], owner.associated_data)
            return value.decode()
        except (InvalidTag, ValueError, IndexError):
            pass  # no cause: its traceback could show the data
        raise KeyringError(
            f"the stored value of the {owner} was changed, or belongs to another secret; restore the database from a "
            "backup, or set the secret again"
        )


Keys = Callable[[], Keyring | None]
"""Returns the present keyring; None if the server has no key. Raises KeyringError if the key cannot be read."""


def no_keys() -> Keyring | None:
    """Return None: the server has no key."""
    return None


def require_keys(keys: Keys) -> Keyring:
    """Return the keyring; raises KeyringError if the server has no key."""
    found = keys()
    if found is None:
        raise KeyringError(
            "the server has no key for stored secrets; set REGROUP_SECRETS_KEY_FILE to a file with the output of "
            "`openssl rand -base64 32`, and start the server again"
        )
    return found


def stored_form(keys: Keys, value: str, owner: Owner) -> str:
    """Return a value as it is stored: encrypted, unless the server has no key. Raises KeyringError."""
    keyring = keys()
    return value if keyring is None else keyring.seal(value, owner)


def read_stored(keys: Keys, stored: str, owner: Owner) -> str:
    """Return the value of a stored text, which may be from a time at which the server had no key.

    Raises:
        KeyringError: it is encrypted, and cannot be read.
    """
    return require_keys(keys).open(stored, owner) if is_sealed(stored) else stored


def is_sealed(stored: str) -> bool:
    """Return True if a stored text is an encrypted value."""
    return stored.startswith(f"{_VERSION}.")


def key_id_of(sealed: str) -> str:
    """Return the id of the key of an encrypted value; empty if the text is damaged."""
    parts = sealed.split(".")
    return parts[1] if len(parts) == 3 and parts[0] == _VERSION else ""


def _decode(text: str) -> bytes:
    """Return the bytes of a text in its only spelling; raises ValueError for any other."""
    data = base64.b64decode(text, altchars=b"-_", validate=True)
    if base64.urlsafe_b64encode(data).decode() != text:
        raise ValueError("the text has bits that its bytes do not have")
    return data


def sealed_prefix(key_id: str) -> str:
    """Return the beginning of all values that this key has encrypted, or that any key has if it is empty."""
    return f"{_VERSION}.{key_id}." if key_id else f"{_VERSION}."
