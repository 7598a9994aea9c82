"""Identities of other systems: the claims of a JWT, and the roles that its groups give. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import Identity, IdentityKind, Membership, Role
from regroup.service.policy.access.roles import higher_role

GROUP_PREFIX = "group:"
"""Begins the name of a group in a membership."""
LEEWAY_S = 30.0
"""Accepted difference between the clocks of the server and of the issuer."""
MAX_GROUPS = 1000


@dataclass(frozen=True)
class ClaimRules:
    """Rules for the tokens of an issuer: whether they are accepted, and the claims that are used."""

    issuer: str
    audience: str
    subject_claim: str = "email"
    groups_claim: str = "groups"
    operator_groups: frozenset[str] = frozenset()
    """Groups whose members are operators of the cluster."""


@dataclass(frozen=True)
class ExternalSubject:
    """A person or a program as its own system describes it."""

    name: str
    groups: frozenset[str] = frozenset()
    is_operator: bool = False
    """True if one of its groups makes it an operator."""
    kind: IdentityKind = IdentityKind.USER

    @property
    def members(self) -> list[str]:
        """Names under which it may be a member of a project."""
        return [self.name, *(f"{GROUP_PREFIX}{group}" for group in sorted(self.groups))]


def read_claims(claims: Mapping[str, Any], rules: ClaimRules, now: float) -> ExternalSubject:
    """Return the subject of a JWT whose signature is valid (RFC 7519, section 4.1).

    Args:
        claims: claims of the token.
        rules: rules of its issuer.
        now: Unix seconds.

    Raises:
        UnauthorizedError: the token is for another audience or of another issuer, is not valid now, or has no subject.
    """
    if claims.get("iss") != rules.issuer:
        raise UnauthorizedError(f"the token is of issuer {claims.get('iss')!r}; this server accepts {rules.issuer!r}")
    audiences = claims.get("aud")
    if rules.audience not in (audiences if isinstance(audiences, list) else [audiences]):
        raise UnauthorizedError(f"the token is for audience {audiences!r}; this server is {rules.audience!r}")
    expires_at, not_before = claims.get("exp"), claims.get("nbf", 0)
    if not _is_number(expires_at) or not _is_number(not_before):
        raise UnauthorizedError("the token has no valid time: `exp` and `nbf` must be numbers")
    if expires_at + LEEWAY_S <= now:
        raise UnauthorizedError("the token has expired; sign in again")
    if not_before - LEEWAY_S > now:
        raise UnauthorizedError("the token is not valid yet; compare the clocks of the server and of the issuer")
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name or len(name) > 200 or name.startswith(GROUP_PREFIX):
        raise UnauthorizedError(
            f"the token has no usable claim {rules.subject_claim!r}; REGROUP_OIDC_SUBJECT_CLAIM chooses another"
        )
    if rules.subject_claim == "email" and claims.get("email_verified", True) is not True:
        raise UnauthorizedError(f"the issuer has not verified the address {name!r}")
    groups = claims.get(rules.groups_claim)
    named = frozenset(each for each in groups[:MAX_GROUPS] if isinstance(each, str)) if isinstance(groups, list) else ()
    return ExternalSubject(name, frozenset(named), bool(rules.operator_groups & frozenset(named)))


def identity_of_subject(
    subject: ExternalSubject,
    memberships: Iterable[tuple[str, Membership]],
    *,
    is_operator: bool = False,
    permissions: frozenset[str] = frozenset(),
) -> Identity:
    """Return the identity of a subject: in each project the highest of its roles, with all additional permissions.

    Args:
        subject: the subject.
        memberships: project and membership, of its name and of its groups.
        is_operator: True if its own row makes it an operator.
        permissions: permissions for the cluster of its own row.
    """
    merged: dict[str, Membership] = {}
    for project, each in memberships:
        before = merged.get(project, each)
        role = higher_role(before.role, each.role)
        merged[project] = replace(before, role=role, permissions=before.permissions | each.permissions)
    operates = is_operator or subject.is_operator
    return Identity(
        subject.name, subject.kind, merged,
        everywhere=Role.ADMIN if operates else None, is_operator=operates, permissions=permissions,
        groups=subject.groups,
    )  # fmt: skip


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
