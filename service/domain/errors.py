"""The error classes. A message states the problem, the value and the remedy.

RegroupError
├── SpecError            a job spec is invalid (one issue per field): 422
├── NotFoundError        no such job, checkpoint or log: 404
├── ConflictError        the request conflicts with the current state: 409
│   └── IllegalTransitionError  a state change that the table does not allow
├── PreconditionError    If-Match or a lease token is outdated: 412
├── ForbiddenError       this server does not allow the request: 403
└── UnavailableError     the database or the cluster does not respond: 503
"""

from collections.abc import Sequence
from dataclasses import dataclass


class RegroupError(Exception):
    """Base class of all errors that regroup raises for its users."""


@dataclass(frozen=True)
class FieldIssue:
    """One invalid field: its path, the problem and its value, if it has one."""

    path: str
    """Dotted path into the spec, for example `layout.dp.max`."""
    message: str
    value: object = None

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


class NotFoundError(RegroupError, LookupError):
    """The requested object does not exist."""


class ConflictError(RegroupError):
    """The request conflicts with the current state."""


class IllegalTransitionError(ConflictError):
    """A state change that `states.TRANSITIONS` does not allow."""


class PreconditionError(RegroupError):
    """The version or lease of the caller is outdated."""


class ForbiddenError(RegroupError):
    """The server is not configured to allow the request."""


class UnavailableError(RegroupError):
    """A required component does not respond; retry later."""
