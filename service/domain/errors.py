"""The error classes. A message states the problem, the value and the remedy.

RegroupError
├── SpecError            a job spec is invalid (one issue per field): 422
├── SettingError         a setting of the server is invalid; the server does not start
├── NotFoundError        no such job, checkpoint or log: 404
├── ConflictError        the request conflicts with the current state: 409
│   ├── IllegalTransitionError  a state change outside the table
│   └── QueueLimitError         too many waiting jobs of one identity
├── PreconditionError    If-Match or a lease token is outdated: 412
├── ForbiddenError       this server does not allow the request: 403
└── UnavailableError     the database or the cluster does not respond: 503
    └── DamagedDatabaseError  the database cannot read its own files: 503
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_MAX_PARTS = 12
_MAX_KEY = 80
"""Most parts of a path, and characters of a key, that a message shows."""


class RegroupError(Exception):
    """Base class of all errors that regroup raises for its users."""


def format_path(location: Sequence[str | int]) -> str:
    """Return a dotted path, shortened if it is long. A key that is empty or is not a name is quoted in brackets."""
    path = ""
    for part in location[:_MAX_PARTS]:
        text = str(part) if len(str(part)) <= _MAX_KEY else str(part)[:_MAX_KEY] + "..."
        is_name = re.fullmatch(r"[\w-]+", text) is not None
        path += (f".{text}" if path else text) if is_name else f"[{json.dumps(text)}]"
    return path + ("…" if len(location) > _MAX_PARTS else "")


def is_confidential(location: Sequence[str | int]) -> bool:
    """Return True if messages must not contain the value there: a user may have put a secret into it."""
    return any(part in ("env", "secrets") for part in location[:3]) or "secret" in location


@dataclass(frozen=True)
class FieldIssue:
    """One invalid field: its path, the problem and its value, if it has one."""

    path: str
    """Dotted path into the spec, for example `layout.dp.max`."""
    message: str
    value: object = None
    location: tuple[str | int, ...] = ()
    """Keys and indexes that lead to the field, if `path` was made of them."""

    @classmethod
    def at(cls, location: Sequence[str | int], message: str, value: object = None) -> "FieldIssue":
        """Return the issue of the field at this location. The value of a variable or secret is left out."""
        shown = None if is_confidential(location) else value
        return cls(format_path(location), message, shown, tuple(location))

    def __str__(self) -> str:
        got = "" if self.value is None else f" (got {self.value!r})"
        return f"{self.path}: {self.message}{got}"


class SpecError(RegroupError, ValueError):
    """The job spec is invalid; `issues` has one entry per invalid field."""

    def __init__(self, issues: Sequence[FieldIssue]) -> None:
        self.issues = tuple(issues)
        super().__init__("; ".join(str(issue) for issue in self.issues))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[tuple[FieldIssue, ...]]]:
        return (SpecError, (self.issues,))


class SettingError(RegroupError):
    """A setting of the server, or a file that a setting names, is invalid.

    Args:
        issues: list of the invalid settings, or a message.
    """

    def __init__(self, issues: Sequence[FieldIssue] | str) -> None:
        self.issues = () if isinstance(issues, str) else tuple(issues)
        super().__init__(issues if isinstance(issues, str) else "; ".join(str(issue) for issue in issues))


class NotFoundError(RegroupError, LookupError):
    """The requested object does not exist."""


class ConflictError(RegroupError):
    """The request conflicts with the current state."""


class IllegalTransitionError(ConflictError):
    """A state change that `states.TRANSITIONS` does not allow."""


class QueueLimitError(ConflictError):
    """As many jobs of the identity wait as the server allows."""


class PreconditionError(RegroupError):
    """The version or lease of the caller is outdated."""


class ForbiddenError(RegroupError):
    """The identity has no permission for the request, or the server is not configured to allow it."""


class UnauthorizedError(RegroupError):
    """The request proves no identity: the token is missing, unknown, expired or revoked."""


class UnavailableError(RegroupError):
    """A required component does not respond; retry later."""


class DamagedDatabaseError(UnavailableError):
    """The database cannot read its own files. A retry does not help; a restore from a backup does."""
