"""Exit codes, and how an error becomes one and a few lines on standard error."""

import sys
from collections.abc import Sequence

from regroup.service.domain.errors import (
    ConflictError,
    FieldIssue,
    ForbiddenError,
    NotFoundError,
    PreconditionError,
    RegroupError,
    SpecError,
    UnavailableError,
)

JOB_NOT_SUCCEEDED = 1
USAGE = 2
INTERRUPTED = 130

_CODES: tuple[tuple[type[RegroupError], int, str], ...] = (
    (SpecError, 3, "the spec is refused; each wrong field is named"),
    (NotFoundError, 4, "no such job, checkpoint or log"),
    (UnavailableError, 5, "the server does not answer, or what it needs does not"),
    (ConflictError, 6, "the request contradicts what is already so"),
    (PreconditionError, 6, ""),
    (ForbiddenError, 7, "the server was not started to allow this"),
)
_KIND_BY_STATUS = {
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionError,
    403: ForbiddenError,
    503: UnavailableError,
}

MEANINGS = {
    0: "done; with `--wait`, `run` and `watch`: the job SUCCEEDED",
    JOB_NOT_SUCCEEDED: "the job ended FAILED or CANCELLED, or an error that has no code of its own",
    USAGE: "the command line itself is wrong",
    **{code: meaning for _, code, meaning in _CODES if meaning},
    INTERRUPTED: "interrupted; a job that was watched goes on",
}
"""Every exit code, for docs/cli.md."""


def report(error: RegroupError) -> int:
    """Print `error` on standard error, a line per wrong field, and give its exit code."""
    from regroup.api.client.errors import ApiError, ServerUnreachableError

    kind: type[RegroupError] = type(error)
    issues: Sequence[FieldIssue] = ()
    if isinstance(error, ApiError):
        wrong = error.problem.errors
        issues = [FieldIssue(each.pointer.strip("/").replace("/", "."), each.detail, each.value) for each in wrong]
        kind = SpecError if error.problem.status == 422 else _KIND_BY_STATUS.get(error.problem.status, RegroupError)
    elif isinstance(error, SpecError):
        issues = error.issues
    elif isinstance(error, ServerUnreachableError):
        kind = UnavailableError
    for line in [_issue(issue) for issue in issues] or [str(error)]:
        print(f"error: {line}", file=sys.stderr)
    return next((code for each, code, _ in _CODES if issubclass(kind, each)), 1)


def _issue(issue: FieldIssue) -> str:
    got = "" if issue.value is None else f" (got {_short(issue.value)})"
    return f"{issue.path + ': ' if issue.path else ''}{issue.message}{got}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
