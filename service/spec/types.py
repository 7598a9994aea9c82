"""Scalar types of a job spec, each with its bounds, and the base class of its sections."""

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from regroup.workers.contract.storage_uri import find_uri_problem

MAX_RANKS = 131_072
"""Largest world size of a job."""
MAX_STEPS = 10**12
"""Largest number of steps, of a job or of an interval."""
MAX_SAMPLES = 2**24
"""Largest number of samples per step."""
MAX_DURATION_S = 10 * 365 * 86400
"""Longest duration: ten years."""
MAX_SIZE_BYTES = 2**50
"""Largest size: 1 PiB."""
MAX_PATH_CHARACTERS = 4096
"""Longest path, as in Linux."""
INSIDE = "inside"
"""Key of an error's context: location of the wrong value inside the field."""
MIN_DURATION_S = 0.001
"""Shortest duration: a millisecond."""
_MAX_DEPTH = 48
"""Deepest nesting of plain data."""
_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_LABEL_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_SECRET = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_MODULE = r"^[^\W\d]\w*(\.[^\W\d]\w*)*$"
CURRENCY = r"^[A-Z]{3}$"
"""Pattern of the code of a currency."""
_FUNCTION = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*$"
ARCHIVE = r"^sha256:[0-9a-f]{64}$"
"""Pattern of an archive's content address."""
CHECKPOINT = r"^[^@\s]{1,64}@([0-9]{1,15}|latest)$"
"""Pattern of a checkpoint of a job."""
LABEL_NAME = r"^[^=\s\x00-\x1f\x7f]+$"
FORMS = {
    _NAME: "must have only lower-case letters, digits and '-', at most 63, and begin and end with a letter or digit",
    _LABEL_VALUE: "must be the value of a label: at most 63 letters, digits, '.', '_' and '-'",
    _SECRET: "must have only letters, digits, '.', '_' and '-', at most 100, and begin and end with a letter or digit",
    _MODULE: "must be the name of a module, such as 'package.module'",
    _FUNCTION: "must have the form 'module:function'",
    CURRENCY: "must be three capital letters, such as EUR",
    ARCHIVE: "must be the address of an archive, 'sha256:' and 64 hexadecimal digits",
    CHECKPOINT: "must have the form 'job@step' or 'job@latest'",
    LABEL_NAME: "must not contain '=' or white space",
}
"""Pattern → the accepted form, for messages."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)[ ]?([A-Za-z]*)")
"""A number of bounded length, and a unit."""
_DURATION_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTE_UNITS = {
    "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_DURATION_FORMS = "a number of seconds or a duration such as '90s', '15m', '2h' or '3d'"


def check_number(value: object) -> object:
    """Refuse booleans and texts, which would otherwise be converted to numbers."""
    if isinstance(value, bool | str | bytes):
        raise PydanticCustomError("number", "must be a number")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise PydanticCustomError("number", "must be a number between -2**63 and 2**63")
    return value


def read_whole_number(value: object) -> object:
    """Return the integer that a float such as 1e3 stands for; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def check_integer(value: object) -> object:
    """Refuse booleans and texts, which would otherwise be converted to integers."""
    if isinstance(value, bool | str | bytes | float):
        raise PydanticCustomError("integer", "must be an integer")
    return value


def check_line(value: str) -> str:
    """Refuse control characters, and white space at the ends."""
    if _CONTROL.search(value):
        raise PydanticCustomError("line", "must be one line of text without control characters")
    if value != value.strip():
        raise PydanticCustomError("line", "must not begin or end with white space")
    return value


def check_nul(value: str) -> str:
    """Refuse the NUL character, which no variable and no argument can contain."""
    if "\x00" in value:
        raise PydanticCustomError("nul", "must not contain the NUL character")
    return value


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute():
        raise PydanticCustomError(
            "absolute", "must be an absolute path (a relative path resolves differently on every node)"
        )
    return path


def _accepted_storage(uri: str) -> str:
    if problem := find_uri_problem(uri):
        raise PydanticCustomError("storage_uri", "{problem}", {"problem": problem})
    return uri


def _variable_name(name: str) -> str:
    if not name:
        raise PydanticCustomError("variable", "a variable needs a name")
    if re.fullmatch(_VARIABLE, name) is None:
        raise PydanticCustomError(
            "variable",
            "is not the name of an environment variable: use letters, digits and '_', not first a digit",
        )
    return name


def parse_seconds(value: object) -> object:
    """Return the seconds of a duration such as `15m`."""
    if not isinstance(value, str):
        return check_number(value)
    match = _QUANTITY.fullmatch(value)
    if match is None or match[2] not in _DURATION_UNITS_S:
        raise PydanticCustomError("duration", "must be {forms}", {"forms": _DURATION_FORMS})
    return float(match[1]) * _DURATION_UNITS_S[match[2]]


def _bytes(value: object) -> object:
    if not isinstance(value, str):
        return check_integer(value)
    match = _QUANTITY.fullmatch(value)
    if match is None or (unit := match[2].removesuffix("B")) not in _BYTE_UNITS:
        raise PydanticCustomError("bytes", "must be a number of bytes or a size such as '512MiB' or '2GiB'")
    return int(float(match[1]) * _BYTE_UNITS[unit])


def parse_off(value: object) -> object:
    """Return `off` for the false that some readers of YAML make of a bare `off`."""
    return "off" if value is False else value


def _seconds_or(*words: str) -> Callable[[object], object]:
    def check(given: object) -> object:
        value = parse_off(given) if "off" in words else given
        if value in words:
            return value
        try:
            seconds = parse_seconds(value)
        except PydanticCustomError:
            seconds = None
        if isinstance(seconds, int | float) and MIN_DURATION_S <= seconds <= MAX_DURATION_S:
            return seconds
        raise PydanticCustomError(
            "duration",
            "must be {words}, or {forms}, between 1 ms and 3650 days",
            {"words": " or ".join(words), "forms": _DURATION_FORMS},
        )

    return check


Integer = Annotated[int, Strict()]
"""An integer. Neither a boolean nor text is one."""
Number = Annotated[float, Strict()]
"""A finite number. Neither a boolean nor text is one."""
Flag = Annotated[bool, Strict()]
"""True or false. Neither a number nor text is one."""
Degree = Annotated[Integer, Field(ge=1, le=MAX_RANKS)]
"""A number of ranks, or a parallel degree."""
Steps = Annotated[Integer, Field(ge=1, le=MAX_STEPS)]
"""A number of steps."""
Failures = Annotated[Integer, Field(ge=0, le=1_000_000)]
"""A number of failures."""
Duration = Annotated[float, Field(ge=MIN_DURATION_S, le=MAX_DURATION_S), BeforeValidator(parse_seconds)]
"""Seconds, or a string such as `15m`."""
_AnyDuration = Annotated[float, Field(ge=MIN_DURATION_S, le=MAX_DURATION_S)]
AutoDuration = Annotated[_AnyDuration | Literal["auto"], BeforeValidator(_seconds_or("auto"))]
"""Seconds, a string such as `15m`, or `auto`."""
AutoOrOffDuration = Annotated[_AnyDuration | Literal["auto", "off"], BeforeValidator(_seconds_or("auto", "off"))]
"""Seconds, a string such as `15m`, `auto` or `off`."""
Bytes = Annotated[int, Field(ge=1, le=MAX_SIZE_BYTES), BeforeValidator(_bytes)]
"""Bytes, or a string such as `2GiB`."""
Line = Annotated[str, Field(max_length=200), AfterValidator(check_line)]
"""A short line of text for people."""
Reason = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(check_line)]
"""A line of text for people that is not empty."""
Location = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS), AfterValidator(check_line)]
"""A path, glob or URI."""
AbsolutePath = Annotated[Location, AfterValidator(_absolute)]
"""A path that is the same on every node."""
StorageUri = Annotated[
    str, Field(min_length=1, max_length=1024), AfterValidator(check_line), AfterValidator(_accepted_storage)
]
"""An absolute path, or a URI of a storage that nodes can share."""
ModuleName = Annotated[str, Field(pattern=_MODULE, max_length=256)]
"""Name of a Python module."""
FunctionName = Annotated[str, Field(pattern=_FUNCTION, max_length=256)]
"""`module:function`."""
VariableName = Annotated[str, Field(max_length=256), AfterValidator(_variable_name)]
"""Name of an environment variable."""
SecretName = Annotated[
    str, Field(pattern=_SECRET, max_length=100, description="letters, digits, '.', '_' and '-', at most 100 characters")
]
"""Name of a secret of a project."""
Value = Annotated[str, Field(max_length=32 * 1024), AfterValidator(check_nul)]
"""Value of a variable, or an argument of a program. Any text without NUL characters."""
LabelValue = Annotated[
    str, Field(pattern=_LABEL_VALUE, max_length=63, description="value of a node's label, at most 63 characters")
]
Name = Annotated[
    str, Field(pattern=_NAME, max_length=63, description="lower-case letters, digits and '-', at most 63 characters")
]


class SpecModel(BaseModel):
    """Base class: frozen, rejects unknown fields and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, data: Any) -> Any:
        """Read 1e3 and 2.0 as integers: JSON has one type of number."""
        if isinstance(data, dict):
            return {name: read_whole_number(value) for name, value in cast(dict[str, object], data).items()}
        return data


def check_plain_data(value: object, max_values: int, max_characters: int) -> object:
    """Check that a value is plain data that JSON represents, within these limits. Never recursive.

    Raises:
        PydanticCustomError: it is not; `INSIDE` of its context is the place.
    """
    values, characters = 0, 0
    pending: list[tuple[tuple[str | int, ...], object]] = [((), value)]
    while pending:
        where, each = pending.pop()
        values += 1
        if isinstance(each, dict):
            items = list(cast(dict[Any, object], each).items())
            if wrong := next((key for key, _ in items if not isinstance(key, str)), None):
                raise _not_plain(where, f"keys must be text, not {wrong!r}")
            characters += sum(len(key) for key, _ in items)
            pending += [((*where, key), item) for key, item in items]
        elif isinstance(each, list | tuple):
            pending += [((*where, index), item) for index, item in enumerate(cast(list[object], each))]
        elif isinstance(each, str):
            characters += len(each)
        elif isinstance(each, float) and not abs(each) < float("inf"):
            raise _not_plain(where, f"{each} is not a finite number")
        elif isinstance(each, int) and abs(each) >= 2**63:
            raise _not_plain(where, "an integer must be between -2**63 and 2**63")
        elif each is not None and not isinstance(each, bool | int | float):
            raise _not_plain(where, f"{type(each).__name__} is not plain data: use text, numbers, lists and mappings")
        if len(where) > _MAX_DEPTH:
            raise _not_plain(where, f"can be nested at most {_MAX_DEPTH} levels deep")
        if values + len(pending) > max_values or characters > max_characters:
            raise PydanticCustomError(
                "too_large",
                "can have at most {values} values and {characters} characters",
                {"values": f"{max_values:,}", "characters": f"{max_characters:,}"},
            )
    return value


def _not_plain(where: tuple[str | int, ...], message: str) -> PydanticCustomError:
    return PydanticCustomError("plain_data", "{message}", {"message": message, INSIDE: where})
