"""The text form of a keyring: one key per line, the newest first. Lines that begin with `#` are comments."""

import base64
import re

from regroup.service.domain.credentials.keyring import KEY_BYTES, MAX_KEYS, Key, Keyring, KeyringError

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_FORM = f"{KEY_BYTES} bytes in Base64 or as hexadecimal digits, as `openssl rand -base64 32` prints them"


def parse_keyring(text: str, source: str) -> Keyring:
    """Return the keys of a text. Messages contain no part of it.

    Args:
        text: content of a key file, or of a variable.
        source: name of the file or the variable, for messages.

    Raises:
        KeyringError: there is no key, or too many, or a line is not a key.
    """
    keys: dict[str, Key] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        material = _decode(entry)
        if material is None:
            raise KeyringError(f"line {number} of {source} is not a key: it needs {_FORM}")
        key = Key.of(material)
        keys.setdefault(key.id, key)
    if not keys:
        raise KeyringError(f"{source} contains no key: write one line with {_FORM}")
    if len(keys) > MAX_KEYS:
        raise KeyringError(f"{source} contains {len(keys)} keys, and {MAX_KEYS} is the maximum; remove the oldest ones")
    return Keyring(tuple(keys.values()), source)


def _decode(entry: str) -> bytes | None:
    if _HEX.fullmatch(entry):
        return bytes.fromhex(entry)
    if not _BASE64.fullmatch(entry):
        return None
    padded = entry.rstrip("=") + "="
    return base64.urlsafe_b64decode(padded.replace("+", "-").replace("/", "_"))
