"""The decision whether an identity has a permission. Pure: everything that decides is in its arguments."""

from dataclasses import replace

from regroup.service.domain.identity import Identity, Membership, Role
from regroup.service.policy.access.roles import (
    ADDABLE,
    CLUSTER_ADDABLE,
    OPEN_TO_ALL,
    PERMISSIONS,
    SECRETS_PREFIX,
    ClusterPermission,
    Permission,
    higher_role,
    lower_role,
)


def is_allowed(identity: Identity, permission: str, project: str) -> bool:
    """Return True if the identity has a permission in a project.

    Args:
        identity: sender of the request.
        permission: a `Permission`, or `secrets:NAME`.
        project: name of the project.
    """
    membership = membership_in(identity, project)
    if membership is None:
        return False
    if permission in membership.permissions or permission in PERMISSIONS[membership.role]:
        return True
    return membership.role is Role.ADMIN and permission.startswith(SECRETS_PREFIX)


def is_allowed_somewhere(identity: Identity, permission: Permission) -> bool:
    """Return True if the identity has a permission in at least one project, or would have it in a new one."""
    if identity.everywhere is not None and permission in PERMISSIONS[identity.everywhere]:
        return True
    return any(is_allowed(identity, permission, project) for project in identity.memberships)


def is_allowed_in_cluster(identity: Identity, permission: ClusterPermission) -> bool:
    """Return True if the identity has a permission for what belongs to no project."""
    return identity.is_operator or permission in OPEN_TO_ALL or permission in identity.permissions


def membership_in(identity: Identity, project: str) -> Membership | None:
    """Return the membership of an identity in a project; None if the project is hidden from it."""
    own = identity.memberships.get(project)
    if identity.everywhere is None:
        return own
    if own is None:
        return Membership(identity.everywhere)
    return replace(own, role=higher_role(own.role, identity.everywhere))


def visible_projects(identity: Identity) -> frozenset[str] | None:
    """Return the projects that the identity may see; None for all. Every role may read its project."""
    return None if identity.everywhere is not None else frozenset(identity.memberships)


def projects_with(identity: Identity, permission: Permission) -> frozenset[str] | None:
    """Return the projects in which the identity has a permission; None for all."""
    if identity.everywhere is not None and permission in PERMISSIONS[identity.everywhere]:
        return None
    return frozenset(project for project in identity.memberships if is_allowed(identity, permission, project))


def restrict(identity: Identity, project: str | None, role: Role | None) -> Identity:
    """Return the identity as a token limits it: to one project, to at most one role, or both.

    An identity with a limit has no permission for the cluster. `role` also ends the additional permissions of
    memberships.
    """
    if project is None and role is None:
        return identity
    memberships, everywhere = dict(identity.memberships), identity.everywhere
    if project is not None:
        only = membership_in(identity, project)
        memberships, everywhere = ({} if only is None else {project: only}), None
    if role is not None:
        memberships = {name: Membership(lower_role(each.role, role)) for name, each in memberships.items()}
        everywhere = None if everywhere is None else lower_role(everywhere, role)
    return replace(
        identity, memberships=memberships, everywhere=everywhere, is_operator=False, permissions=frozenset(),
        is_limited=True,
    )  # fmt: skip


def refused_cluster_permissions(permissions: frozenset[str]) -> list[str]:
    """Return the permissions that an identity cannot have without being an operator."""
    return sorted(permissions - CLUSTER_ADDABLE)


def refused_permissions(permissions: frozenset[str]) -> list[str]:
    """Return the permissions that a membership cannot add to its role."""
    return sorted(each for each in permissions if each not in ADDABLE and not _is_secret(each))


def _is_secret(permission: str) -> bool:
    return permission.startswith(SECRETS_PREFIX) and permission != SECRETS_PREFIX
