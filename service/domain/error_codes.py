"""The table of errors: the code in the API, the HTTP status, the title, and the exit code of the command line."""

from collections.abc import Sequence
from dataclasses import dataclass

from regroup.service.domain.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PreconditionError,
    QueueLimitError,
    RegroupError,
    SpecError,
    UnauthorizedError,
    UnavailableError,
)

EXIT_OTHER = 1
EXIT_INVALID = 3
EXIT_NOT_FOUND = 4
EXIT_UNAVAILABLE = 5
EXIT_CONFLICT = 6
EXIT_FORBIDDEN = 7


@dataclass(frozen=True)
class ErrorCode:
    """One kind of error, as users see it."""

    code: str
    status: int
    """HTTP status."""
    title: str
    exit_code: int = EXIT_OTHER


ERROR_CODES: Sequence[ErrorCode] = (
    ErrorCode("malformed_json", 400, "Malformed JSON in the request body", EXIT_INVALID),
    ErrorCode("bad_request", 400, "Invalid request", EXIT_INVALID),
    ErrorCode("unauthorized", 401, "Not authenticated", EXIT_FORBIDDEN),
    ErrorCode("forbidden", 403, "Not allowed", EXIT_FORBIDDEN),
    ErrorCode("not_found", 404, "Not found", EXIT_NOT_FOUND),
    ErrorCode("method_not_allowed", 405, "Method not allowed", EXIT_INVALID),
    ErrorCode("request_timeout", 408, "The request did not arrive in time", EXIT_UNAVAILABLE),
    ErrorCode("conflict", 409, "Conflict with the current state", EXIT_CONFLICT),
    ErrorCode("too_many_queued_jobs", 409, "Too many queued jobs", EXIT_CONFLICT),
    ErrorCode("precondition_failed", 412, "The version in If-Match is outdated", EXIT_CONFLICT),
    ErrorCode("body_too_large", 413, "Request body too large", EXIT_INVALID),
    ErrorCode("archive_too_large", 413, "Archive too large", EXIT_INVALID),
    ErrorCode("unsupported_media_type", 415, "The request body must be application/json", EXIT_INVALID),
    ErrorCode("host_not_allowed", 421, "Host not allowed", EXIT_FORBIDDEN),
    ErrorCode("invalid_spec", 422, "Invalid job spec", EXIT_INVALID),
    ErrorCode("invalid_request", 422, "Invalid field in the request", EXIT_INVALID),
    ErrorCode("damaged_upload", 422, "Upload checksum mismatch", EXIT_INVALID),
    ErrorCode("archive_refused", 422, "Archive of code refused", EXIT_INVALID),
    ErrorCode("idempotency_key_reused", 422, "The idempotency key belongs to another request", EXIT_INVALID),
    ErrorCode("too_many_requests", 429, "Too many requests", EXIT_UNAVAILABLE),
    ErrorCode("too_many_streams", 429, "Too many streams", EXIT_UNAVAILABLE),
    ErrorCode("too_many_uploads", 429, "Too many uploads", EXIT_UNAVAILABLE),
    ErrorCode("internal", 500, "Internal server error"),
    ErrorCode("upload_quota_exceeded", 507, "No space left for code archives", EXIT_UNAVAILABLE),
    ErrorCode("unavailable", 503, "Service unavailable", EXIT_UNAVAILABLE),
)
"""All errors of the API."""

CODE_BY_ERROR: Sequence[tuple[type[RegroupError], str]] = (
    (SpecError, "invalid_spec"),
    (NotFoundError, "not_found"),
    (QueueLimitError, "too_many_queued_jobs"),
    (ConflictError, "conflict"),
    (PreconditionError, "precondition_failed"),
    (ForbiddenError, "forbidden"),
    (UnauthorizedError, "unauthorized"),
    (UnavailableError, "unavailable"),
)
"""The first class that matches an error names its code."""

_BY_CODE = {each.code: each for each in ERROR_CODES}


def error_code(code: str) -> ErrorCode:
    """Return the entry of `code`."""
    return _BY_CODE[code]


def error_code_name(error: RegroupError) -> str:
    """Return the code of an error raised on this machine; `error` if it has none of its own."""
    return next((code for kind, code in CODE_BY_ERROR if isinstance(error, kind)), "error")


def exit_code_for(error: RegroupError) -> int:
    """Return the exit code for an error raised on this machine."""
    code = error_code_name(error)
    return error_code(code).exit_code if code in _BY_CODE else EXIT_OTHER


def exit_code_for_response(code: str, status: int) -> int:
    """Return the exit code for an error response; an unknown `code` falls back to the status."""
    if code in _BY_CODE:
        return _BY_CODE[code].exit_code
    return next((each.exit_code for each in ERROR_CODES if each.status == status), EXIT_OTHER)
