"""Wire models of the secrets of projects. No answer contains a value."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from regroup.api.schemas.wire import Wire

MIN_CHARACTERS = 4
"""Shortest value. Shorter ones could not be removed from logs: they are parts of other words."""
MAX_BYTES = 16 * 1024
"""Longest value, in UTF-8."""

_BOUNDS: dict[str, Any] = {"minLength": MIN_CHARACTERS, "maxLength": MAX_BYTES}
"""Bounds in the schema of the API. `check_value` checks them: a message of the library would be about items."""


def check_value(value: SecretStr) -> SecretStr:
    """Check the bounds of a value. Messages contain no part of it."""
    text = value.get_secret_value()
    try:
        size_bytes = len(text.encode())
    except UnicodeError:
        raise PydanticCustomError("secret_value", "must be valid Unicode") from None
    if len(text.strip()) < MIN_CHARACTERS:
        message = "must have at least {count} characters, so that logs can hide it"
        raise PydanticCustomError("secret_value", message, {"count": MIN_CHARACTERS})
    if size_bytes > MAX_BYTES:
        raise PydanticCustomError("secret_value", "must have at most {count} bytes", {"count": f"{MAX_BYTES:,}"})
    if "\0" in text:
        raise PydanticCustomError("secret_value", "must not contain the NUL character")
    return value


class SecretValue(BaseModel):
    """The value of a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    value: Annotated[SecretStr, Field(json_schema_extra=_BOUNDS), AfterValidator(check_value)]
    """Any text without NUL characters: at least 4 characters, and at most 16 KiB in UTF-8."""


class Secret(Wire):
    """A secret of a project, without its value."""

    project: str
    """Name of the project."""
    name: str
    """Name of the secret."""
    version: int
    """Number of times that its value was set since its creation."""
    created_at: float
    """Unix seconds."""
    created_by: str
    """Name of the identity that created it."""
    updated_at: float
    """Time at which the value was set, Unix seconds."""
    updated_by: str
    """Name of the identity that set the value."""
    used_at: float | None
    """Time at which the server last sent the value to a job, Unix seconds; null if it never did."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class SecretList(BaseModel):
    """Secrets of a project, by name."""

    secrets: list[Secret]
    """The secrets."""


class Reencryption(Wire):
    """The result of an encryption of stored secrets with the current key."""

    key_id: str
    """Key that encrypts."""
    encrypted: int
    """Number of values that were encrypted again."""
    unreadable: int
    """Number of values that no key of the server decrypts."""
    is_complete: bool
    """False if more values follow: send the request again."""
