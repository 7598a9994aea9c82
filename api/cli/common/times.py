"""Parser of times and durations on the command line."""

from datetime import datetime
from typing import Any

from regroup.service.domain.errors import FieldIssue, SpecError


def parse_time(option: str, text: str | None, now: float) -> float | None:
    """Return Unix seconds for a time, or for a duration before now; None for None.

    Raises:
        SpecError: the text is neither.
    """
    from pydantic_core import PydanticCustomError

    from regroup.service.spec.types import parse_seconds

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        seconds: Any = parse_seconds(text)
        return max(0.0, now - float(seconds))
    except PydanticCustomError as error:
        message = "must be a time such as 2026-11-01T12:00, or the time until now such as 12h or 7d"
        raise SpecError([FieldIssue(option, message, text)]) from error
