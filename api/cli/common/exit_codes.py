"""Exit codes of the command line, and errors on standard error: one line per problem, or one JSON document."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.error_codes import (
    EXIT_CONFLICT,
    EXIT_FORBIDDEN,
    EXIT_INVALID,
    EXIT_NOT_FOUND,
    EXIT_OTHER,
    EXIT_UNAVAILABLE,
    error_code_name,
    exit_code_for,
    exit_code_for_response,
)
from regroup.service.domain.errors import FieldIssue, RegroupError, SettingError, SpecError

JOB_NOT_SUCCEEDED = EXIT_OTHER
USAGE = 2
INTERRUPTED = 130

MEANINGS = {
    0: "success; with `--wait`, `run` and `watch`: the job SUCCEEDED",
    JOB_NOT_SUCCEEDED: "the job ended FAILED or CANCELLED, a wait ended without its result, or an error without a code "
    "of its own",
    USAGE: "invalid command line, or an invalid setting of the server",
    EXIT_INVALID: "invalid spec or request; each invalid field is named",
    EXIT_NOT_FOUND: "no such job, checkpoint, log, node or project",
    EXIT_UNAVAILABLE: "the server, its database or its cluster does not respond",
    EXIT_CONFLICT: "the request conflicts with the current state",
    EXIT_FORBIDDEN: "the server does not allow this request, or the client lacks its token",
    INTERRUPTED: "interrupted; a watched job continues",
}
"""Every exit code, for the documentation. `regroup exec` exits with the code of its command instead."""


@dataclass(frozen=True)
class Failure:
    """An error as the command line reports it."""

    code: str
    """Stable name, e.g. `not_found`."""
    exit_code: int
    message: str
    fields: tuple[FieldIssue, ...] = ()
    """Invalid fields, if the error names some."""

    def lines(self) -> list[str]:
        """Return one line per invalid field, or the message."""
        return [_issue(issue) for issue in self.fields] or [self.message]

    def to_json(self) -> str:
        """Return the error as one JSON document on one line."""
        fields = [{"path": each.path, "message": each.message, "value": each.value} for each in self.fields]
        body = {"code": self.code, "exit_code": self.exit_code, "message": self.message, "fields": fields}
        return json.dumps({"error": body}, ensure_ascii=False, default=str)


def report(error: RegroupError, *, as_json: bool = False) -> int:
    """Print `error` on standard error and return its exit code."""
    return print_failure(failure_of(error), as_json=as_json)


def print_failure(failure: Failure, *, as_json: bool) -> int:
    """Print a failure on standard error, as one JSON document or as lines, and return its exit code."""
    for line in [failure.to_json()] if as_json else [f"error: {line}" for line in failure.lines()]:
        print(line, file=sys.stderr)
    return failure.exit_code


def failure_of(error: RegroupError) -> Failure:
    """Return what the command line reports about `error`."""
    from regroup.api.client.connection.errors import ApiError, ServerUnreachableError
    from regroup.api.client.discovery import describe_absence
    from regroup.api.client.operations.code_archive import ArchiveError

    if isinstance(error, ApiError):
        problem = error.problem
        issues = [
            FieldIssue(field.pointer.strip("/").replace("/", "."), field.detail, field.value)
            for field in problem.errors
        ]
        exit_code = exit_code_for_response(problem.code, problem.status)
        return Failure(problem.code, exit_code, f"{problem.title}: {problem.detail}", tuple(issues))
    if isinstance(error, ServerUnreachableError):
        absence = describe_absence(str(error))
        return Failure("unavailable", EXIT_UNAVAILABLE, f"{error}{'; ' if absence else ''}{absence}")
    if isinstance(error, SettingError):
        return Failure("invalid_setting", USAGE, str(error), error.issues)
    if isinstance(error, ArchiveError):
        return Failure("invalid_archive", EXIT_INVALID, str(error))
    fields: Sequence[FieldIssue] = error.issues if isinstance(error, SpecError) else ()
    return Failure(error_code_name(error), exit_code_for(error), str(error), tuple(fields))


def _issue(issue: FieldIssue) -> str:
    got = "" if issue.value is None else f" (got {_short(issue.value)})"
    return f"{issue.path + ': ' if issue.path else ''}{issue.message}{got}"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
