"""Exit codes of the command line, and errors as lines on standard error."""

import sys
from collections.abc import Sequence

from regroup.service.domain.error_codes import (
    EXIT_CONFLICT,
    EXIT_FORBIDDEN,
    EXIT_INVALID,
    EXIT_NOT_FOUND,
    EXIT_OTHER,
    EXIT_UNAVAILABLE,
    exit_code_for,
    exit_code_for_response,
)
from regroup.service.domain.errors import FieldIssue, RegroupError, SpecError

JOB_NOT_SUCCEEDED = EXIT_OTHER
USAGE = 2
INTERRUPTED = 130

MEANINGS = {
    0: "success; with `--wait`, `run` and `watch`: the job SUCCEEDED",
    JOB_NOT_SUCCEEDED: "the job ended FAILED or CANCELLED, or an error without a code of its own",
    USAGE: "invalid command line",
    EXIT_INVALID: "invalid spec or request; each invalid field is named",
    EXIT_NOT_FOUND: "no such job, checkpoint or log",
    EXIT_UNAVAILABLE: "the server, its database or its cluster does not respond",
    EXIT_CONFLICT: "the request conflicts with the current state",
    EXIT_FORBIDDEN: "the server does not allow this request, or the client lacks its token",
    INTERRUPTED: "interrupted; a watched job continues",
}
"""Every exit code, for docs/cli.md."""


def report(error: RegroupError) -> int:
    """Print `error` on standard error, one line per invalid field, and return its exit code."""
    from regroup.api.client.errors import ApiError, ServerUnreachableError

    issues: Sequence[FieldIssue] = ()
    if isinstance(error, ApiError):
        problem = error.problem
        issues = [
            FieldIssue(field.pointer.strip("/").replace("/", "."), field.detail, field.value)
            for field in problem.errors
        ]
        code = exit_code_for_response(problem.code, problem.status)
    elif isinstance(error, ServerUnreachableError):
        code = EXIT_UNAVAILABLE
    else:
        issues = error.issues if isinstance(error, SpecError) else ()
        code = exit_code_for(error)
    for line in [_issue(issue) for issue in issues] or [str(error)]:
        print(f"error: {line}", file=sys.stderr)
    return code


def _issue(issue: FieldIssue) -> str:
    got = "" if issue.value is None else f" (got {_short(issue.value)})"
    return f"{issue.path + ': ' if issue.path else ''}{issue.message}{got}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
