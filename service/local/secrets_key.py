"""The keys of stored secrets: from a file or a variable, or from a file that the server creates next to its database.

The file is read again when it has changed, so a rotation needs no restart. An unreadable file is an error of each
operation that needs it. The server itself stays up.
"""

import base64
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from regroup.service.domain.credentials.key_text import parse_keyring
from regroup.service.domain.credentials.keyring import KEY_BYTES, Keyring, KeyringError
from regroup.service.local.private_files import create_private
from regroup.service.settings import Settings

VARIABLE = "REGROUP_SECRETS_KEY"
"""Variable of the server with the keys themselves. No other process inherits it."""
KEY_FILE_NAME = "secrets.key"
"""Name of the file in the state directory."""
_MAX_BYTES = 64 * 1024
_COMMENT = "# Key of the secrets in the database of regroup. Without this file they cannot be read: keep a copy.\n"


@dataclass(frozen=True)
class _FileState:
    """The attributes of a file of which one differs after each change."""

    inode: int
    changed_ns: int
    size_bytes: int


class KeySource:
    """Returns the keys that the settings name. It is a `Keys`.

    A server with SQLite and without a setting creates a key in its state directory. Servers that share a PostgreSQL
    need the same key, so they get none without a setting.
    """

    def __init__(self, settings: Settings) -> None:
        self._variable = settings.secrets_key
        is_own = not self._variable and settings.secrets_key_file is None and settings.database_url.startswith("sqlite")
        self._is_own = is_own
        self._path = settings.state_dir / KEY_FILE_NAME if is_own else settings.secrets_key_file
        self._state: _FileState | None = None
        self._keyring: Keyring | None = None

    def __call__(self) -> Keyring | None:
        """Return the present keyring; None if the settings name none.

        Raises:
            KeyringError: the key cannot be read, or is not a key.
        """
        if self._variable:
            self._keyring = self._keyring or parse_keyring("\n".join(self._variable.split(",")), VARIABLE)
            return self._keyring
        return None if self._path is None else self._of_file(self._path)

    def prepare(self) -> None:
        """Create the key of a server on one machine, unless there is one."""
        if self._is_own and self._path is not None and not self._path.exists():
            key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            create_private(self._path, f"{_COMMENT}{key}\n")

    def _of_file(self, path: Path) -> Keyring:
        try:
            with path.open(encoding="ascii") as file:
                found = os.fstat(file.fileno())
                state = _FileState(found.st_ino, found.st_mtime_ns, found.st_size)
                if self._keyring is not None and state == self._state:
                    return self._keyring
                _check_private(path, found, is_own=self._is_own)
                keyring = parse_keyring(file.read(_MAX_BYTES), f"the key file {path}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
            raise KeyringError(
                f"the key file {path} cannot be read ({reason}): restore it, or correct REGROUP_SECRETS_KEY_FILE"
            ) from None
        self._state, self._keyring = state, keyring
        return keyring


def _check_private(path: Path, found: os.stat_result, *, is_own: bool) -> None:
    mode = stat.S_IMODE(found.st_mode)
    # Kubernetes mounts a Secret for the group of the pod. A file of the state directory has no such reason.
    if mode & (0o077 if is_own else 0o007) or found.st_uid not in (os.geteuid(), 0):
        raise KeyringError(
            f"the key file {path} (user {found.st_uid}, mode {mode:04o}) is not private: type `chmod 600 {path}`, and "
            "rotate the key if another user may have read it"
        )
