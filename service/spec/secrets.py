"""Secrets section of a job spec: references to values that the project stores, or that only the node reads."""

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.spec.types import Location, SecretName, SpecModel, VariableName


class KubernetesSecret(SpecModel):
    """A key of a Kubernetes Secret that is mounted on the nodes. See docs/guides/secrets.md."""

    name: str = Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """Name of the Secret."""
    key: str = Field(max_length=253, pattern=r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,251}$")
    """Key of the value in the Secret."""


class SecretRef(SpecModel):
    """Source of a secret's value. The value itself is never in a spec, log or event."""

    from_project: SecretName | None = None
    """Name of a secret of the project; `regroup secret set` stores it. Needs the permission `secrets:NAME`."""
    from_env: VariableName | None = None
    """Name of an environment variable on the node."""
    from_file: Location | None = None
    """Path of a file on the node."""
    from_kubernetes: KubernetesSecret | None = None
    """Key of a Secret that is mounted on the node."""

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if [self.from_project, self.from_env, self.from_file, self.from_kubernetes].count(None) != 3:
            message = "set exactly one of from_project, from_env, from_file and from_kubernetes"
            raise PydanticCustomError("secret", message)
        return self
