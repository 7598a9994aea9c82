"""Rows of identities, members of projects, tokens, and sessions."""

from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.domain.versions import etag_of


@dataclass(frozen=True)
class IdentityRow:
    """A person or a service account."""

    subject: str
    kind: IdentityKind
    project: str | None
    """Project whose admins manage this service account; None for people, and for accounts of operators."""
    is_operator: bool
    created_at: float
    """Unix seconds."""
    created_by: str
    disabled_at: float | None = None
    """Time since which its tokens are refused, Unix seconds."""
    permissions: frozenset[str] = frozenset()
    """Permissions for the cluster that it has without being an operator."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of an identity that an audit record shows."""
        return {**asdict(self), "permissions": sorted(self.permissions)}

    @property
    def etag(self) -> str:
        """Entity tag of the identity. Its memberships and tokens are objects of their own."""
        return etag_of(self.facts)


@dataclass(frozen=True)
class MemberRow:
    """A membership in a project."""

    project: str
    subject: str
    """An identity, or `group:NAME` for a group of the identity provider."""
    membership: Membership
    created_at: float
    created_by: str

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a membership that an audit record shows."""
        return {
            "project": self.project,
            "role": self.membership.role,
            "permissions": sorted(self.membership.permissions),
            "created_by": self.created_by,
        }

    @property
    def etag(self) -> str:
        """Entity tag of the membership."""
        return etag_of(self.facts)


@dataclass(frozen=True)
class TokenRow:
    """A token. The token itself is not stored."""

    id: str
    subject: str
    name: str
    """Description, for people."""
    digest: str
    """SHA-256 of the secret part, in hexadecimal digits."""
    project: str | None
    """The only project in which the token is valid; None for all projects of its subject."""
    role: Role | None
    """Highest role of the token; None for the roles of its subject."""
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    """Time of the last use, Unix seconds, at most a minute late."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that an audit record shows: all but the digest and the last use, which is not a change."""
        facts = asdict(self)
        del facts["digest"], facts["used_at"]
        return facts

    @property
    def etag(self) -> str:
        """Entity tag of the token."""
        return etag_of(self.facts)


@dataclass(frozen=True)
class StoredToken:
    """A token with everything that decides what it may do, as one transaction read it."""

    token: TokenRow
    identity: IdentityRow
    members: tuple[MemberRow, ...]


@dataclass(frozen=True)
class SessionRow:
    """A session of a browser. It proves what its creator proved: one of `token_id`, `groups` and `owner_digest`."""

    id: str
    subject: str
    digest: str
    """SHA-256 of the secret of the cookie, in hexadecimal digits."""
    proof_digest: str
    """SHA-256 of the proof."""
    address: str
    """Address of the browser."""
    agent: str
    """Name that the browser gives itself."""
    created_at: float
    expires_at: float
    token_id: str | None = None
    """Token for which it stands, with the limits of that token."""
    groups: frozenset[str] | None = None
    """Groups of a person of the identity provider."""
    owner_digest: str | None = None
    """SHA-256 of the owner's token, for the owner of the server."""
    used_at: float | None = None
    """Time of the last use, Unix seconds, at most a minute late."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that an audit record shows: all but the digests and the last use, which is not a change."""
        facts = {**asdict(self), "groups": None if self.groups is None else sorted(self.groups)}
        for name in ("digest", "proof_digest", "owner_digest", "used_at"):
            del facts[name]
        return facts

    @property
    def etag(self) -> str:
        """Entity tag of the session."""
        return etag_of(self.facts)
