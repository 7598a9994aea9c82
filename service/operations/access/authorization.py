"""Authorization: the errors for what an identity may not do, and the permissions that a submission needs."""

from dataclasses import dataclass

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ForbiddenError, NotFoundError
from regroup.service.domain.identity import Identity
from regroup.service.policy.access.decision import (
    is_allowed,
    is_allowed_in_cluster,
    is_allowed_somewhere,
    membership_in,
    visible_projects,
)
from regroup.service.policy.access.roles import SECRETS_PREFIX, ClusterPermission, Permission
from regroup.service.policy.scheduling.entries import Priority
from regroup.service.spec.job import JobSpec


@dataclass(frozen=True)
class Sender:
    """The identity that sends a request, with the checks of its permissions."""

    identity: Identity
    address: str
    """Address of the client."""

    @property
    def author(self) -> Author:
        """The author of the changes that the request makes."""
        return Author(self.name, self.identity.session_id or self.identity.token_id, self.address)

    @property
    def name(self) -> str:
        """Name of the actor in events."""
        return self.identity.subject

    def sees(self, project: str) -> bool:
        """Return True if the project is not hidden from the sender."""
        return membership_in(self.identity, project) is not None

    def require(self, permission: str, project: str) -> None:
        """Check a permission in a project.

        Raises:
            NotFoundError: the sender does not see the project.
            ForbiddenError: the sender sees it, but does not have the permission.
        """
        membership = membership_in(self.identity, project)
        if membership is None:
            raise NotFoundError(f"no project {project!r}; `regroup projects list` lists yours")
        if not is_allowed(self.identity, permission, project):
            raise ForbiddenError(
                f"{self.name} is {membership.role} of project {project!r} and does not have the permission "
                f"`{permission}`; an admin of the project can grant it with `regroup members set`"
            )

    def visible(self, project: str | None) -> frozenset[str] | None:
        """Return the projects that a list may show: of `project` only, or all; None for every project."""
        if project is None:
            return visible_projects(self.identity)
        return frozenset({project} if self.sees(project) else ())

    def require_somewhere(self, permission: Permission) -> None:
        """Check that the sender has a permission in at least one project; raises ForbiddenError."""
        if not is_allowed_somewhere(self.identity, permission):
            raise ForbiddenError(
                f"{self.name} does not have the permission `{permission}` in any project; an admin of a project can "
                "grant a role with `regroup members set`"
            )

    def require_in_cluster(self, permission: ClusterPermission) -> None:
        """Check a permission for what belongs to no project; raises ForbiddenError."""
        if not is_allowed_in_cluster(self.identity, permission):
            raise ForbiddenError(
                f"{self.name} does not have the permission `{permission}`; operators of the cluster have it"
            )

    def require_for_submission(self, spec: JobSpec) -> None:
        """Check the permissions that a job needs because of its spec. Raises the errors of `require`."""
        self.require(Permission.JOBS_WRITE, spec.project)
        if Priority[spec.priority] > Priority.normal:
            self.require(Permission.HIGH_PRIORITY, spec.project)
        if spec.faults or spec.disable_detectors:
            self.require(Permission.FAULTS, spec.project)
        for name in sorted(set(spec.project_secrets.values())):
            self.require(f"{SECRETS_PREFIX}{name}", spec.project)
