"""The error tree. A message says what was wrong, the value, and what to do.

RegroupError
├── SpecError            a job spec is wrong: one issue per field            422
├── NotFoundError        no such job, checkpoint or log                      404
├── ConflictError        the request contradicts what is already so          409
│   └── IllegalTransitionError  a state change the table does not allow
├── PreconditionError    If-Match or a lease token no longer holds           412
├── ForbiddenError       this server does not honour the request             403
└── UnavailableError     the database or the cluster does not answer         503
"""

from collections.abc import Sequence
from dataclasses import dataclass


class RegroupError(Exception):
    """Base of every error that regroup raises for its users."""


@dataclass(frozen=True)
class FieldIssue:
    """One wrong field: where it is, what it holds, what would be legal."""

    path: str
    """Dotted path into the spec, e.g. `layout.dp.max`."""
    message: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message} (got {self.value!r})"


class SpecError(RegroupError, ValueError):
    """The job spec is refused; `issues` names every wrong field."""

    def __init__(self, issues: Sequence[FieldIssue]) -> None:
        self.issues = tuple(issues)
        super().__init__("; ".join(str(issue) for issue in self.issues))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[tuple[FieldIssue, ...]]]:
        return (SpecError, (self.issues,))


class NotFoundError(RegroupError, LookupError):
    """What was asked for does not exist."""


class ConflictError(RegroupError):
    """The request contradicts the present state."""


class IllegalTransitionError(ConflictError):
    """A state change that `states.TRANSITIONS` does not list."""


class PreconditionError(RegroupError):
    """The version or lease under which the caller acted has passed."""


class ForbiddenError(RegroupError):
    """The server was not started to allow this."""


class UnavailableError(RegroupError):
    """A part this request needs does not answer now; try again."""
