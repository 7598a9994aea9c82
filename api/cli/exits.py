"""Exit codes, and how an error becomes one and a few lines on standard error."""

import sys

from regroup.service.errors import (
    ConflictError,
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
    (RegroupError, 1, ""),
)

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
    if isinstance(error, SpecError):
        for issue in error.issues:
            got = "" if issue.value is None else f" (got {_short(issue.value)})"
            print(f"error: {issue.path + ': ' if issue.path else ''}{issue.message}{got}", file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)
    return next(code for kind, code, _ in _CODES if isinstance(error, kind))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
