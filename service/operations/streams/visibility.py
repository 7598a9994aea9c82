"""The notices that an identity may see. Pure."""

from dataclasses import dataclass

from regroup.service.domain.identity import Identity
from regroup.service.policy.access.decision import is_allowed_in_cluster, projects_with
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.store.notices.notice_rows import Notice, Topic


@dataclass(frozen=True)
class Visibility:
    """The objects that an identity may read."""

    job_projects: frozenset[str] | None
    """Projects whose jobs it may read; None for all."""
    projects: frozenset[str] | None
    """Projects whose settings it may read; None for all."""
    has_nodes: bool

    @classmethod
    def of(cls, identity: Identity) -> "Visibility":
        """Return the visibility of an identity."""
        return cls(
            projects_with(identity, Permission.JOBS_READ),
            projects_with(identity, Permission.PROJECT_READ),
            is_allowed_in_cluster(identity, ClusterPermission.NODES_READ),
        )

    def includes(self, notice: Notice) -> bool:
        """Return True if the identity may see a notice."""
        match notice.topic:
            case Topic.JOB:
                return self.job_projects is None or notice.project in self.job_projects
            case Topic.PROJECT:
                return self.projects is None or notice.project in self.projects
            case Topic.NODE:
                return self.has_nodes
            case Topic.STREAM:
                return True
