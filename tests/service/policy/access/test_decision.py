"""The decision about permissions: roles, permissions, operators, and the limits of tokens."""

import pytest

from regroup.service.domain.identity import Identity, IdentityKind, Membership, Role
from regroup.service.policy.access.decision import (
    is_allowed,
    is_allowed_in_cluster,
    membership_in,
    projects_with,
    refused_cluster_permissions,
    refused_permissions,
    restrict,
    visible_projects,
)
from regroup.service.policy.access.roles import ADDABLE, PERMISSIONS, ClusterPermission, Permission


def member(role: Role, *permissions: str) -> Identity:
    """Return an identity that is a member of the project `own`."""
    return Identity("ana", IdentityKind.USER, {"own": Membership(role, frozenset(permissions))})


OPERATOR = Identity("olga", IdentityKind.USER, everywhere=Role.ADMIN, is_operator=True)


def test_each_role_includes_the_permissions_of_those_before_it() -> None:
    viewer, editor, admin = (PERMISSIONS[role] for role in Role)
    assert viewer < editor < admin == set(Permission)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("permission", Permission)
def test_a_member_has_the_permissions_of_its_role_in_its_project_only(role: Role, permission: Permission) -> None:
    assert is_allowed(member(role), permission, "own") == (permission in PERMISSIONS[role])
    assert not is_allowed(member(role), permission, "other")
    assert is_allowed(OPERATOR, permission, "own") and is_allowed(OPERATOR, permission, "not-created-yet")


@pytest.mark.parametrize("permission", sorted(ADDABLE))
def test_a_permission_can_be_granted_to_a_viewer(permission: Permission) -> None:
    assert not is_allowed(member(Role.VIEWER), permission, "own")
    assert is_allowed(member(Role.VIEWER, permission), permission, "own")
    assert not is_allowed(member(Role.VIEWER, permission), permission, "other")


def test_a_secret_is_granted_by_its_name_and_belongs_to_admins() -> None:
    assert is_allowed(member(Role.EDITOR, "secrets:hub"), "secrets:hub", "own")
    assert not is_allowed(member(Role.EDITOR, "secrets:hub"), "secrets:db", "own")
    assert not is_allowed(member(Role.EDITOR), "secrets:hub", "own")
    assert is_allowed(member(Role.ADMIN), "secrets:hub", "own") and is_allowed(OPERATOR, "secrets:hub", "own")


def test_only_some_permissions_can_be_granted() -> None:
    given = frozenset({"exec", "secrets:hub", "secrets:", "jobs:write", "members:write", "nodes:write", "everything"})
    assert refused_permissions(given) == ["everything", "jobs:write", "members:write", "nodes:write", "secrets:"]


@pytest.mark.parametrize("permission", ClusterPermission)
def test_only_operators_change_the_cluster(permission: ClusterPermission) -> None:
    open_to_all = permission in (ClusterPermission.NODES_READ, ClusterPermission.PLANS)
    assert is_allowed_in_cluster(member(Role.ADMIN), permission) == open_to_all
    assert is_allowed_in_cluster(OPERATOR, permission)


def test_members_see_their_projects_and_operators_see_all() -> None:
    assert visible_projects(member(Role.VIEWER)) == {"own"} and visible_projects(OPERATOR) is None
    assert membership_in(member(Role.VIEWER), "other") is None


# ------------------------------------------------------------ limits of tokens


def test_a_token_without_limits_changes_nothing() -> None:
    assert restrict(OPERATOR, None, None) == OPERATOR


def test_a_token_for_one_project_sees_no_other() -> None:
    limited = restrict(OPERATOR, "own", None)
    assert visible_projects(limited) == {"own"} and is_allowed(limited, Permission.EXEC, "own")
    assert not is_allowed(limited, Permission.JOBS_READ, "other")
    assert not is_allowed_in_cluster(limited, ClusterPermission.NODES_WRITE)
    assert visible_projects(restrict(member(Role.ADMIN), "other", None)) == frozenset()


def test_a_token_with_a_role_has_at_most_that_role_and_no_more() -> None:
    limited = restrict(member(Role.EDITOR, Permission.EXEC), None, Role.ADMIN)
    assert is_allowed(limited, Permission.JOBS_WRITE, "own") and not is_allowed(limited, Permission.EXEC, "own")
    assert not is_allowed(limited, Permission.MEMBERS_WRITE, "own")
    assert not is_allowed(restrict(member(Role.ADMIN), None, Role.VIEWER), Permission.JOBS_WRITE, "own")


def test_a_token_of_an_operator_with_a_role_keeps_all_projects_but_not_the_cluster() -> None:
    limited = restrict(OPERATOR, None, Role.VIEWER)
    assert visible_projects(limited) is None and is_allowed(limited, Permission.JOBS_READ, "any")
    assert not is_allowed(limited, Permission.JOBS_WRITE, "any")
    assert not is_allowed_in_cluster(limited, ClusterPermission.METRICS)


def test_the_projects_with_a_permission_are_those_of_a_sufficient_role() -> None:
    roles = {"one": Role.ADMIN, "two": Role.EDITOR, "three": Role.VIEWER}
    ana = Identity("ana", IdentityKind.USER, {name: Membership(role) for name, role in roles.items()})
    assert projects_with(ana, Permission.AUDIT_READ) == {"one"}
    assert projects_with(ana, Permission.LOGS) == {"one", "two"}
    assert projects_with(OPERATOR, Permission.AUDIT_READ) is None
    limited = restrict(OPERATOR, None, Role.EDITOR)
    assert projects_with(limited, Permission.AUDIT_READ) == frozenset()
    assert projects_with(limited, Permission.LOGS) is None


def test_an_identity_can_have_single_permissions_for_the_cluster() -> None:
    scraper = Identity("prometheus", IdentityKind.USER, permissions=frozenset({ClusterPermission.METRICS}))
    assert is_allowed_in_cluster(scraper, ClusterPermission.METRICS)
    assert not is_allowed_in_cluster(scraper, ClusterPermission.NODES_WRITE)
    assert not is_allowed_in_cluster(restrict(scraper, None, Role.ADMIN), ClusterPermission.METRICS)
    assert visible_projects(scraper) == frozenset()


def test_permissions_to_change_identities_are_for_operators_only() -> None:
    given = frozenset({"metrics", "identities:write", "audit:verify", "everything"})
    assert refused_cluster_permissions(given) == ["audit:verify", "everything", "identities:write"]
