"""Rows of the secrets of projects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regroup.service.domain.credentials.keyring import Owner
from regroup.service.domain.versions import etag_of
from regroup.service.store.schema.json_values import plain

SECRET = "secret"
"""Kind of the owner of a secret of a project."""


@dataclass(frozen=True)
class SecretRow:
    """A secret of a project."""

    project: str
    name: str
    version: int
    """Number of times that its value was set since its creation."""
    key_id: str
    """Key that decrypts the value."""
    sealed: str = field(repr=False)
    """Encrypted value."""
    created_at: float
    """Unix seconds."""
    created_by: str
    updated_at: float
    """Unix seconds."""
    updated_by: str
    used_at: float | None = None
    """Time at which the server last sent the value to a job, Unix seconds."""

    @property
    def owner(self) -> Owner:
        """The owner to which the value is bound."""
        return secret_owner(self.project, self.name, self.version)

    @property
    def facts(self) -> dict[str, Any]:
        """The secret for an audit record: without its value, and without what changes by itself."""
        names = ("name", "version", "created_at", "created_by", "updated_at", "updated_by")
        return {name: getattr(self, name) for name in names}

    @property
    def etag(self) -> str:
        """Entity tag of the secret."""
        return etag_of(plain(self.facts))

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> "SecretRow":
        """Return the secret of a stored row."""
        values: dict[str, Any] = dict(row)
        return cls(**values)


def secret_owner(project: str, name: str, version: int) -> Owner:
    """Return the owner of a version of a secret."""
    return Owner(SECRET, project, name, version)
