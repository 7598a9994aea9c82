"""The effective settings of the server, without secrets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regroup.service.settings import Settings

_PASSWORD = re.compile(r"(://[^/:@\s]*:)[^/\s]*@")
_QUERY = re.compile(r"([?&][^=&]*(?:password|secret|token|key|sig)[^=&]*=)[^&\s]*", re.IGNORECASE)
_MASK = "***"


@dataclass(frozen=True)
class EffectiveSetting:
    """A setting with its value and where that comes from."""

    name: str
    variable: str
    """Environment variable."""
    value: Any
    """Value as JSON; None if it is not set, or is a secret."""
    source: Literal["flag", "environment", "default"]
    is_secret: bool
    """True if the value is a secret, which is not shown."""


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """Return all settings in the order of the documentation. Passwords in URLs are replaced by `***`."""
    return [
        EffectiveSetting(
            name=name,
            variable=f"REGROUP_{name.upper()}",
            value=None if field.repr is False else _shown(getattr(settings, name)),
            source=settings.source_of(name),
            is_secret=field.repr is False,
        )
        for name, field in Settings.model_fields.items()
    ]


def _shown(value: Any) -> Any:
    if isinstance(value, str | Path):
        return _QUERY.sub(rf"\1{_MASK}", _PASSWORD.sub(rf"\1{_MASK}@", str(value)))
    if isinstance(value, Mapping):
        pairs: Mapping[str, Any] = value
        return {key: _shown(each) for key, each in pairs.items()}
    if isinstance(value, tuple):
        parts: tuple[Any, ...] = value
        return [_shown(each) for each in parts]
    return value
