"""Wire models of the effective settings of the server."""

from typing import Literal

from regroup.api.schemas.wire import Wire


class ServerSetting(Wire):
    """A setting of the server."""

    name: str
    """Name of the setting."""
    variable: str
    """Environment variable that sets it."""
    value: str | bool | float | list[str] | dict[str, str] | None
    """Effective value; null if there is none, or if it is a secret. Passwords in addresses are `***`."""
    source: Literal["flag", "environment", "default"]
    """Source of the value: a flag of `regroup serve`, the environment, or the default."""
    is_secret: bool
    """True if the value is a secret, which is not shown."""
    description: str
    """Meaning of the setting."""


class ServerSettings(Wire):
    """Effective settings of the server that answers. Several servers may have different ones."""

    settings: list[ServerSetting]
    """The settings, in the order of the documentation."""
