"""The file of `regroup apply`: people, service accounts, projects and their members."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.api.schemas.identities import MemberSettings, PermissionName, Subject
from regroup.api.schemas.projects import ProjectSettings
from regroup.service.domain.identity import IdentityKind, Role
from regroup.service.spec.types import Name

MAX_ENTRIES = 10_000


def _as_settings(value: object) -> object:
    """Return the long form of a member: `admin` stands for `{role: admin}`."""
    return {"role": value} if isinstance(value, str) else value


MemberName = Annotated[str, Field(min_length=1, max_length=300)]
MemberEntry = Annotated[MemberSettings, BeforeValidator(_as_settings)]


class SetupIdentity(BaseModel):
    """A person or a service account that exists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: IdentityKind = IdentityKind.USER
    """A person (`user`) or a program (`service_account`)."""
    project: Name | None = None
    """Project whose admins manage this service account."""
    role: Role | None = None
    """Role of the service account in its project."""
    is_operator: bool = False
    """True for an operator of the cluster."""
    permissions: Annotated[list[PermissionName], Field(max_length=20)] = []
    """Permissions for the cluster without being an operator."""
    disabled: bool = False
    """True refuses all tokens of the identity."""

    @model_validator(mode="after")
    def _check_project(self) -> "SetupIdentity":
        if (self.project is None) != (self.role is None):
            raise PydanticCustomError("setup_identity", "project and role belong together: give both, or none")
        return self


class SetupProject(ProjectSettings):
    """A project with its settings and its members."""

    members: Annotated[dict[MemberName, MemberEntry], Field(max_length=MAX_ENTRIES)] = {}
    """Name of an identity, or `group:NAME` → its role, or its role and its permissions."""


class Setup(BaseModel):
    """The objects that `regroup apply` creates or changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    """Version of this format."""
    identities: Annotated[dict[Subject, SetupIdentity], Field(max_length=MAX_ENTRIES)] = {}
    """Name of an identity → its fields."""
    projects: Annotated[dict[Name, SetupProject], Field(max_length=1_000)] = {}
    """Name of a project → its settings and its members."""
