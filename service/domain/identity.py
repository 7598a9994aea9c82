"""Senders of requests: identities with their roles in projects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """Role of an identity in one project. Each role includes the permissions of those before it."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"


class IdentityKind(StrEnum):
    """Kind of an identity."""

    OWNER = "owner"
    """The operating-system user who runs the server. A file that only this user can read proves it."""
    USER = "user"
    """A person."""
    SERVICE_ACCOUNT = "service_account"
    """A program, for example a pipeline. It has tokens but cannot sign in."""


@dataclass(frozen=True)
class Membership:
    """Role of an identity in a project, with permissions that were granted in addition."""

    role: Role
    permissions: frozenset[str] = frozenset()
    """Additional permissions, for example `exec` or `secrets:NAME`."""


@dataclass(frozen=True)
class Identity:
    """The sender of a request, with everything that decides what it may do."""

    subject: str
    """Unique name. It is the actor in events and audit records."""
    kind: IdentityKind
    memberships: Mapping[str, Membership] = field(default_factory=dict[str, Membership])
    """Memberships by project."""
    everywhere: Role | None = None
    """Role in every project, also in those that do not exist yet. Operators are admins everywhere."""
    is_operator: bool = False
    """True for an operator of the cluster."""
    permissions: frozenset[str] = frozenset()
    """Permissions for the cluster that it has without being an operator."""
    token_id: str | None = None
    """Id of the token that the request has; None if it has another proof."""
    session_id: str | None = None
    """Id of the browser's session that the request belongs to; None if it has another proof."""
    groups: frozenset[str] | None = None
    """Groups at the identity provider that issued its token; None if this server issued it."""
    is_limited: bool = False
    """True if the token limits its identity to a project or a role. Such a token cannot create others."""
