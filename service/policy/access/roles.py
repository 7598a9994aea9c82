"""The permissions of each role, as data.

A permission is `noun:verb`, or a word for one dangerous ability. A route declares the permission that it needs, and
`decision.py` is the only code that compares both.
"""

from collections.abc import Mapping
from enum import StrEnum

from regroup.service.domain.identity import Role


class Permission(StrEnum):
    """A permission in one project."""

    JOBS_READ = "jobs:read"
    """See jobs, with their specs, events, metrics, incidents and checkpoints."""
    JOBS_WRITE = "jobs:write"
    """Submit jobs, and cancel, suspend, resume, resize and release them, and set their budgets."""
    LOGS = "logs"
    """Read the output, the stacks and the evidence of ranks. They may contain data."""
    EXEC = "exec"
    """Run commands on the nodes of a job, with the environment of a rank."""
    FAULTS = "faults"
    """Submit jobs with `faults` or `disable_detectors`, if the server allows them."""
    HIGH_PRIORITY = "priority:high"
    """Submit jobs with a priority above `normal`."""
    PROJECT_READ = "project:read"
    """See the quota, the limits and the use of the project."""
    MEMBERS_READ = "members:read"
    """See the members of the project."""
    MEMBERS_WRITE = "members:write"
    """Add, change and remove members and service accounts of the project, and revoke their tokens."""
    HOOKS_READ = "hooks:read"
    """See the hooks of the project, and the log of their deliveries."""
    HOOKS_WRITE = "hooks:write"
    """Create, change, test and remove hooks of the project: events of its jobs then leave the server."""
    SECRETS_READ = "project_secrets:read"
    """See the names of the project's secrets, and who set them. No permission shows a value."""
    SECRETS_WRITE = "project_secrets:write"
    """Set and delete secrets of the project."""
    AUDIT_READ = "audit:read"
    """See who changed what in the project. Operators also see the changes of what belongs to no project."""


class ClusterPermission(StrEnum):
    """A permission for what belongs to no project."""

    NODES_READ = "nodes:read"
    """See nodes, topology, drains and measurements."""
    NODES_WRITE = "nodes:write"
    """Cordon and drain nodes, and measure them."""
    PLANS = "plans"
    """Calculate layouts for a model."""
    PROJECTS_WRITE = "projects:write"
    """Change the quotas, limits and budgets of projects."""
    IDENTITIES_WRITE = "identities:write"
    """Create, disable and delete users, and make them operators."""
    KEYS_WRITE = "keys:write"
    """Encrypt the stored secrets of all projects with the current key of the server."""
    SETTINGS_READ = "settings:read"
    """See the effective settings of the server, without secrets."""
    AUDIT_VERIFY = "audit:verify"
    """See the ends of the chain of audit records."""
    METRICS = "metrics"
    """Read the metrics of the server, with those of all projects."""


SECRETS_PREFIX = "secrets:"
"""`secrets:NAME` is the permission to use a secret of the project in a job."""
_VIEWER = frozenset({Permission.JOBS_READ, Permission.PROJECT_READ})
_EDITOR = _VIEWER | {
    Permission.JOBS_WRITE, Permission.LOGS, Permission.MEMBERS_READ, Permission.HOOKS_READ, Permission.SECRETS_READ,
}  # fmt: skip
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.EDITOR: _EDITOR,
    Role.ADMIN: frozenset(Permission),
}
"""Permissions of each role in its project."""
ADDABLE = frozenset({Permission.LOGS, Permission.EXEC, Permission.FAULTS, Permission.HIGH_PRIORITY})
"""Permissions that a membership may add to its role, in addition to `secrets:NAME`."""
OPEN_TO_ALL = frozenset({ClusterPermission.NODES_READ, ClusterPermission.PLANS})
"""Permissions of every identity. All others for the cluster belong to operators."""
CLUSTER_ADDABLE = frozenset(
    {ClusterPermission.NODES_WRITE, ClusterPermission.PROJECTS_WRITE, ClusterPermission.METRICS}
)
"""Permissions for the cluster that an identity may have without being an operator."""
_ORDER = tuple(Role)


def lower_role(one: Role, other: Role) -> Role:
    """Return the role with fewer permissions."""
    return min(one, other, key=_ORDER.index)


def higher_role(one: Role, other: Role) -> Role:
    """Return the role with more permissions."""
    return max(one, other, key=_ORDER.index)
