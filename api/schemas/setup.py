"""The file of `regroup apply`: people, service accounts, and projects with their members, secrets and hooks."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from regroup.api.schemas.hooks import Events, HookName, Labels, Recipients, Url
from regroup.api.schemas.identities import MemberSettings, PermissionName, Subject
from regroup.api.schemas.projects import ProjectSettings
from regroup.service.domain.hooks import DEFAULT_EVENTS, HookKind
from regroup.service.domain.identity import IdentityKind, Role
from regroup.service.spec.types import Location, Name, SecretName, VariableName

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


def _refuse_literal(value: object) -> object:
    """Refuse the value of a secret itself: the file is stored with other configuration."""
    if isinstance(value, str | int | float | bool):
        message = "must not be the value itself: write {from_env: VARIABLE} or {from_file: PATH}, of your machine"
        raise PydanticCustomError("literal_secret", message)
    return value


class SetupSecret(BaseModel):
    """A place on the caller's machine that has the value of a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    from_env: VariableName | None = None
    """Name of an environment variable of `regroup apply`."""
    from_file: Location | None = None
    """Path of a file, read by `regroup apply`."""

    @model_validator(mode="after")
    def _check_one_source(self) -> "SetupSecret":
        if (self.from_env is None) == (self.from_file is None):
            raise PydanticCustomError("setup_secret", "set exactly one of from_env and from_file")
        return self

    def __str__(self) -> str:
        return f"from_env: {self.from_env}" if self.from_env is not None else f"from_file: {self.from_file}"


SecretEntry = Annotated[SetupSecret, BeforeValidator(_refuse_literal)]


class SetupHook(BaseModel):
    """A hook that exists. Its name identifies it in its project."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kind: HookKind = HookKind.CLOUDEVENTS
    """Receiver: a program (`cloudevents`), `slack`, `teams` or `email`."""
    url: Url | SetupSecret | None = None
    """URL of the receiver, or the place of the URL on your machine. A hook of kind `email` has none."""
    recipients: Recipients = []
    """Addresses, for a hook of kind `email`."""
    events: Events = list(DEFAULT_EVENTS)
    """Types of events, or `state:STATE`. Default: the ends of jobs, and jobs that are held."""
    labels: Labels = {}
    """Labels that a job must have. Default: all jobs of the project."""
    secret: SecretEntry | None = None
    """Place of the key of the signatures, for `cloudevents`. Never the key itself."""
    disabled: bool = False
    """True sends no notifications."""

    @model_validator(mode="after")
    def _check_secrets(self) -> "SetupHook":
        if problem := self._find_problem():
            about = {"kind": self.kind, "problem": problem}
            raise PydanticCustomError("setup_hook", "a hook of kind {kind} {problem}", about)
        return self

    def _find_problem(self) -> str:
        place = "{from_env: VARIABLE} or {from_file: PATH}"
        is_signed = self.kind is HookKind.CLOUDEVENTS
        if is_signed and self.secret is None:
            return f"needs the secret of its signatures: {place}"
        if not is_signed and self.secret is not None:
            return "is not signed; leave the secret out"
        if self.kind in (HookKind.SLACK, HookKind.TEAMS) and isinstance(self.url, str):
            return f"has a URL that is a secret: write {place}, of your machine"
        return ""


class SetupProject(ProjectSettings):
    """A project with its settings, its members, its secrets and its hooks."""

    members: Annotated[dict[MemberName, MemberEntry], Field(max_length=MAX_ENTRIES)] = {}
    """Name of an identity, or `group:NAME` → its role, or its role and its permissions."""
    secrets: Annotated[dict[SecretName, SecretEntry], Field(max_length=100)] = {}
    """Name of a secret → the place of its value on your machine. Never the value itself."""
    hooks: Annotated[dict[HookName, SetupHook], Field(max_length=20)] = {}
    """Name of a hook → its receiver and its filter."""


class Setup(BaseModel):
    """The objects that `regroup apply` creates or changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    """Version of this format."""
    identities: Annotated[dict[Subject, SetupIdentity], Field(max_length=MAX_ENTRIES)] = {}
    """Name of an identity → its fields."""
    projects: Annotated[dict[Name, SetupProject], Field(max_length=1_000)] = {}
    """Name of a project → its settings and its members."""
