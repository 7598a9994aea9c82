"""The token of the API: a user who can read its file may use the server."""

import os
import pwd
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from regroup.service.domain.errors import ConflictError
from regroup.service.local.private_files import create_private

TOKEN_VARIABLE = "REGROUP_TOKEN"
"""Variable of clients: the token itself."""
TOKEN_FILE_VARIABLE = "REGROUP_TOKEN_FILE"
"""Variable of clients and of the server: the file with the token."""
VARIABLES = (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)
TOKEN_NAME = "api.token"
"""Name of the file in the state directory, as in `Settings.token_path`. Clients start faster without that import."""
_BYTES = 32
_MIN_CHARACTERS = 20


def user_name() -> str:
    """Return the name of the user of this process; `uid-N` if the user has no name, as in a container."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


@dataclass(frozen=True)
class ApiToken:
    """The token, and the file from which clients read it."""

    value: str = field(repr=False)
    path: Path
    owner: str = field(default_factory=user_name)
    """Name of the user who runs the server."""


def own_token(state_dir: Path) -> str:
    """Return the token that a server without `token_file` created in its state directory."""
    return (state_dir / TOKEN_NAME).read_text().strip()


def ensure_token(path: Path, *, create: bool, setting: str = TOKEN_FILE_VARIABLE) -> ApiToken:
    """Return the token in a file. With `create`, write a random one first if there is no file.

    Args:
        path: the file.
        create: False if the operator must create the file.
        setting: flag or variable that names the file, for messages.

    Raises:
        ConflictError: the file does not exist, is readable by other users, or has no usable token.
    """
    if create:
        create_private(path, secrets.token_urlsafe(_BYTES) + "\n")
    try:
        with path.open() as file:
            found, value = os.fstat(file.fileno()), file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConflictError(f"the token file {path} cannot be read ({error}): correct {setting}") from error
    mode = stat.S_IMODE(found.st_mode)
    # Kubernetes mounts a Secret for the group of the pod. A file of the state directory has no such reason.
    if mode & (0o077 if create else 0o007) or found.st_uid not in (os.geteuid(), 0):
        remedy = "remove it, and the server creates another; or " if create else ""
        raise ConflictError(
            f"the token file {path} (user {found.st_uid}, mode {mode:04o}) is not private: {remedy}"
            f"type `chmod 600 {path}` if no other user has read it"
        )
    if len(value) < _MIN_CHARACTERS or not value.isascii() or not value.isprintable() or " " in value:
        raise ConflictError(
            f"the token file {path} needs one line of at least {_MIN_CHARACTERS} printable ASCII characters without "
            "spaces, for example from `openssl rand -hex 32`"
        )
    return ApiToken(value, path)
