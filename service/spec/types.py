"""Scalar types of a job spec (durations, sizes, names) and the base class of its sections."""

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_LABEL_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_DURATION_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTE_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def _seconds(value: object) -> object:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value) if isinstance(value, str) else None
    if match:
        return float(match[1]) * _DURATION_UNITS_S[match[2]]
    if isinstance(value, str):
        raise PydanticCustomError(
            "duration", "must be a number of seconds or a duration such as '90s', '15m', '2h' or '3d'"
        )
    return value


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute():
        raise PydanticCustomError(
            "absolute", "must be an absolute path (a relative path resolves differently on every node)"
        )
    return path


def _bytes(value: object) -> object:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?|)B?", value) if isinstance(value, str) else None
    if match:
        return int(float(match[1]) * _BYTE_UNITS[match[2]])
    if isinstance(value, str):
        raise PydanticCustomError("bytes", "must be a number of bytes or a size such as '512MiB' or '2GiB'")
    return value


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
"""Seconds, or a string such as `15m`."""


def parse_off(value: object) -> object:
    """Return `off` for the false that YAML makes of a bare `off`."""
    return "off" if value is False else value


def _seconds_or(*words: str) -> Callable[[object], object]:
    def check(given: object) -> object:
        value = parse_off(given) if "off" in words else given
        seconds = _seconds(value) if value not in words and re.match(r"\s*[\d.]", str(value)) else value
        if value in words or (isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0):
            return seconds
        raise PydanticCustomError(
            "duration",
            "must be {words}, a number of seconds > 0 or a duration such as '90s'",
            {"words": " or ".join(words)},
        )

    return check


AutoDuration = Annotated[float | Literal["auto"], BeforeValidator(_seconds_or("auto"))]
"""Seconds, a string such as `15m`, or `auto`."""
AutoOrOffDuration = Annotated[float | Literal["auto", "off"], BeforeValidator(_seconds_or("auto", "off"))]
"""Seconds, a string such as `15m`, `auto` or `off`."""
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
"""Bytes, or a string such as `2GiB`."""
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
"""A path that is the same on every node."""
Positive = Annotated[int, Field(ge=1)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE, description="value of a node's label, at most 63 characters")]
Name = Annotated[str, Field(pattern=_NAME, description="lower-case letters, digits and '-', at most 63 characters")]


class SpecModel(BaseModel):
    """Base class: frozen, rejects unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)
