"""Profiles: the servers to which a user has signed in, with their tokens, in one private file.

The folder is `REGROUP_CONFIG_DIR`, else `regroup` in `XDG_CONFIG_HOME`, else `~/.config/regroup`.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from regroup.service.domain.errors import FieldIssue, ForbiddenError, NotFoundError, SpecError
from regroup.service.local.private_files import write_private

PROFILE_VARIABLE = "REGROUP_PROFILE"
FOLDER_VARIABLE = "REGROUP_CONFIG_DIR"
_FILE = "profiles.json"
_VERSION = 1
_MAX_NAME = 64


@dataclass(frozen=True)
class Renewal:
    """The renewal of a token that an issuer gave (RFC 6749, section 6)."""

    token_endpoint: str
    client_id: str
    refresh_token: str | None
    """None: the issuer gave none, and the user must sign in again."""
    expires_at: float
    """Time at which the token ends, Unix seconds."""
    is_id_token: bool
    """True if the server accepts the ID token, false if it accepts the access token."""


@dataclass(frozen=True)
class Profile:
    """A server, and the token of its user."""

    name: str
    server: str
    """URL, as `server_url` returns it."""
    token: str = dataclasses.field(repr=False)
    ca_file: str | None = None
    """File with the authorities to trust for this server, PEM."""
    renewal: Renewal | None = dataclasses.field(default=None, repr=False)
    """None for a token of the server itself."""


@dataclass(frozen=True)
class Profiles:
    """All profiles of a user, by name."""

    all: Mapping[str, Profile] = dataclasses.field(default_factory=dict[str, Profile])
    chosen: str | None = None
    """Name of the profile that commands use; None for the server of this machine."""

    def named(self, name: str) -> Profile:
        """Return a profile; raises NotFoundError."""
        if name not in self.all:
            names = ", ".join(sorted(self.all)) or "none"
            raise NotFoundError(f"no profile {name!r}; profiles: {names}. `regroup login` creates one")
        return self.all[name]

    def of_server(self, url: str) -> Profile | None:
        """Return the profile of a server, the chosen one first; None if there is none."""
        found = [each for each in self.all.values() if each.server == url]
        return min(found, key=lambda each: (each.name != self.chosen, each.name), default=None)

    def with_profile(self, profile: Profile, *, choose: bool) -> "Profiles":
        """Return the profiles with one more, or with another one of its name."""
        return Profiles({**self.all, profile.name: profile}, profile.name if choose else self.chosen)

    def without(self, name: str) -> "Profiles":
        """Return the profiles without one; raises NotFoundError."""
        removed = self.named(name).name
        rest = {each: profile for each, profile in self.all.items() if each != removed}
        return Profiles(rest, None if self.chosen == removed else self.chosen)


def check_name(name: str) -> str:
    """Return a valid name of a profile; raises SpecError."""
    if not name or len(name) > _MAX_NAME or not all(each.isalnum() or each in "._-" for each in name):
        message = f"must have 1 to {_MAX_NAME} letters, digits, dots, hyphens and underscores"
        raise SpecError([FieldIssue("profile", message, name)])
    return name


def profiles_file() -> Path:
    """Return the path of the file with the profiles, which may not exist."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        return Path(folder).expanduser() / _FILE
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "regroup" / _FILE


def load_profiles() -> Profiles:
    """Return the profiles of this user.

    Raises:
        ForbiddenError: the file cannot be read, or has another format.
    """
    path = profiles_file()
    try:
        data = cast(dict[str, Any], json.loads(path.read_text()))
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError) as error:
        raise ForbiddenError(f"the profiles in {path} cannot be read: {error}; remove the file and sign in") from error
    try:
        if data["version"] != _VERSION:
            raise ValueError(f"version {data['version']}")
        return Profiles({name: _profile(name, each) for name, each in data["profiles"].items()}, data.get("chosen"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ForbiddenError(f"{path} does not contain profiles of this version: {error}; remove the file") from error


def save_profiles(profiles: Profiles) -> None:
    """Store the profiles in a file that only this user can read."""
    path = profiles_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    every = {
        name: {key: value for key, value in dataclasses.asdict(each).items() if key != "name"}
        for name, each in sorted(profiles.all.items())
    }
    text = json.dumps({"version": _VERSION, "chosen": profiles.chosen, "profiles": every}, indent=2)
    write_private(path, text + "\n")


@contextmanager
def changing_profiles() -> Generator[None]:
    """Exclude other processes of this user while the block reads the profiles and stores them again."""
    path = profiles_file().with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def current_profile() -> Profile | None:
    """Return the profile that `REGROUP_PROFILE` or `regroup profiles use` names; None for this machine's server."""
    profiles = load_profiles()
    name = os.environ.get(PROFILE_VARIABLE) or profiles.chosen
    return None if name is None else profiles.named(name)


def _profile(name: str, data: Mapping[str, Any]) -> Profile:
    renewal = None if data["renewal"] is None else Renewal(**data["renewal"])
    return Profile(name, str(data["server"]), str(data["token"]), data["ca_file"], renewal)
