"""Wire models of errors: `application/problem+json` (RFC 9457)."""

from typing import Any

from regroup.api.schemas.wire import Wire


class InvalidField(Wire):
    """An invalid field of a request."""

    pointer: str
    """JSON pointer into the body, or the name of a parameter."""
    detail: str
    """Description of the error, with the valid values."""
    value: Any = None
    """The invalid value, shortened; null if it may be a secret."""
    line: int | None = None
    """Line of the field in a YAML body, from 1; null for a JSON body."""
    column: int | None = None
    """Column of the field in a YAML body, from 1."""


class Problem(Wire):
    """An error, for programs (`code`) and people (`detail`)."""

    type: str
    """Stable URN of the type of problem."""
    title: str
    """Name of the type, for people."""
    status: int
    """Status code of the response."""
    detail: str
    """Description of the error, with the value and the remedy."""
    instance: str = ""
    """Path of the request."""
    code: str
    """Type, for programs."""
    errors: list[InvalidField] = []
    """Invalid fields of the request."""
