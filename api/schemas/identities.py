"""Wire models of identities, members of projects, and tokens."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regroup.api.schemas.wire import Wire
from regroup.service.domain.identity import IdentityKind, Role
from regroup.service.spec.types import Name, parse_seconds

Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+:-]*$")]
PermissionName = Annotated[str, Field(min_length=1, max_length=300)]
MIN_EXPIRY_S = 60
MAX_EXPIRY_S = 10 * 365 * 86400
DEFAULT_EXPIRY_S = 90 * 86400


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MemberSettings(_Body):
    """The role of a member, and permissions in addition."""

    role: Role
    """Role in the project."""
    permissions: Annotated[list[PermissionName], Field(max_length=100)] = []
    """Permissions in addition to those of the role: `exec`, `faults`, `logs`, `priority:high`, `secrets:NAME`."""


class Member(Wire):
    """A member of a project."""

    project: str
    """Name of the project."""
    subject: str
    """Name of the identity, or `group:NAME` for a group of the identity provider."""
    role: Role
    """Role in the project."""
    permissions: list[str]
    """Permissions in addition to those of the role."""
    created_at: float
    """Time of the last change, Unix seconds."""
    created_by: str
    """Name of the identity that made the last change."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class MemberList(BaseModel):
    """Members of a project, ordered by name."""

    members: list[Member]
    """The members."""


class NewIdentity(_Body):
    """A person or a service account to create."""

    subject: Subject
    """Unique name, for example an e-mail address. It is the actor in events."""
    kind: IdentityKind = IdentityKind.USER
    """A person (`user`) or a program (`service_account`)."""
    project: Name | None = None
    """Project whose admins manage this service account. Only operators create identities without one."""
    role: Role | None = None
    """Role of the service account in its project; it becomes a member at once."""
    is_operator: bool = False
    """True for an operator of the cluster."""
    permissions: Annotated[list[PermissionName], Field(max_length=20)] = []
    """Permissions for the cluster without being an operator: `metrics`, `nodes:write`, `projects:write`."""


class IdentityChange(_Body):
    """Changes of an identity. Fields that are absent stay as they are."""

    is_operator: bool | None = None
    """True for an operator of the cluster."""
    disabled: bool | None = None
    """True refuses all tokens of the identity at once; false accepts them again."""
    permissions: Annotated[list[PermissionName], Field(max_length=20)] | None = None
    """Permissions for the cluster without being an operator. They replace the present ones."""


class Identity(Wire):
    """A person or a service account."""

    subject: str
    """Unique name."""
    kind: IdentityKind
    """A person or a program."""
    project: str | None
    """Project whose admins manage this service account."""
    is_operator: bool
    """True for an operator of the cluster."""
    created_at: float
    """Unix seconds."""
    created_by: str
    """Name of the identity that created it."""
    disabled_at: float | None
    """Time since which its tokens are refused, Unix seconds; null if they are accepted."""
    permissions: Annotated[list[str], BeforeValidator(sorted)]
    """Permissions for the cluster without being an operator."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class IdentityList(BaseModel):
    """Identities, ordered by name."""

    identities: list[Identity]
    """The identities."""


class NewToken(_Body):
    """A token to create."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Description of the token, for people."""
    subject: Subject | None = None
    """Identity that the token proves. Default: your own."""
    project: Name | None = None
    """The only project in which the token is valid. Default: all projects of its identity."""
    role: Role | None = None
    """Highest role of the token. Default: the roles of its identity."""
    expires_in_s: Annotated[float, Field(ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S), BeforeValidator(parse_seconds)] = (
        DEFAULT_EXPIRY_S
    )
    """Time after which the token is refused, in seconds or e.g. `30d`. Default: 90 days."""


class Token(Wire):
    """A token, without its secret."""

    id: str
    """Id of the token. It is the second part of the token and no secret."""
    subject: str
    """Identity that the token proves."""
    name: str
    """Description, for people."""
    project: str | None
    """The only project in which the token is valid; null for all projects of its identity."""
    role: Role | None
    """Highest role of the token; null for the roles of its identity."""
    created_at: float
    """Unix seconds."""
    created_by: str
    """Name of the identity that created it."""
    expires_at: float | None
    """Time after which it is refused, Unix seconds."""
    revoked_at: float | None
    """Time at which it was revoked, Unix seconds."""
    used_at: float | None
    """Time of its last use, Unix seconds, at most a minute late."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""


class IssuedToken(Token):
    """A new token with its secret. The server stores only a digest, and never shows the secret again."""

    value: str
    """The token. Send it as `Authorization: Bearer TOKEN`."""


class TokenList(BaseModel):
    """Tokens, the newest first."""

    tokens: list[Token]
    """The tokens."""


class OwnMembership(Wire):
    """A membership of the sender."""

    project: str
    """Name of the project."""
    role: Role
    """Role in the project."""
    permissions: list[str]
    """Permissions in addition to those of the role."""


class Me(Wire):
    """The identity of the sender, as its token limits it."""

    subject: str
    """Unique name."""
    kind: IdentityKind
    """The owner of the server, a person or a program."""
    is_operator: bool
    """True for an operator of the cluster."""
    everywhere: Role | None
    """Role in every project; null if the sender sees only the projects in `memberships`."""
    permissions: list[str]
    """Permissions for the cluster without being an operator."""
    memberships: list[OwnMembership]
    """Roles in single projects, ordered by project."""
    token_id: str | None
    """Id of the token; null for the token of the server's owner."""
    session_id: str | None = None
    """Id of the browser's session; null for a program."""
