"""Jobs that a server refuses whose ranks run as users of their own. Pure.

Agents and Ray's workers run as root there. They must not read or write a path for a job that the job's own user could
not open.
"""

import posixpath

from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.spec.data_preparation import PreparedData
from regroup.service.spec.job import JobSpec
from regroup.service.spec.workload import RayTrainWorkload


def check_isolation(spec: JobSpec, rank_users: str, storage_uri: str) -> None:
    """Check that no part of a job would run with the rights of the agents.

    Args:
        spec: Spec of the job.
        rank_users: Range of user ids for ranks; empty if they run as the user of the agents.
        storage_uri: Durable storage of jobs whose spec names none.

    Raises:
        SpecError: The spec names a folder for the agents to write, data for Ray's workers to prepare, or a program
            that writes to the server's folder itself.
    """
    if not rank_users:
        return
    if spec.storage_uri and _local(spec.storage_uri) not in (None, _local(storage_uri)):
        message = (
            "this server runs each job as a user of its own (REGROUP_RANK_USERS), and agents write checkpoints as "
            f"root: leave storage_uri out, which means {storage_uri}, or use object storage"
        )
        raise SpecError([FieldIssue("storage_uri", message, spec.storage_uri)])
    if isinstance(spec.workload, RayTrainWorkload) and _local(spec.storage_uri or storage_uri) is not None:
        message = (
            "this server runs each job as a user of its own (REGROUP_RANK_USERS), and a program of kind ray_train "
            "writes its checkpoints itself, but only agents can write to a folder of the server: set storage_uri to "
            "object storage for which the job has credentials"
        )
        raise SpecError([FieldIssue("storage_uri", message, spec.storage_uri)])
    if isinstance(getattr(spec.workload, "data", None), PreparedData):
        message = (
            "this server runs each job as a user of its own (REGROUP_RANK_USERS), and data.prepare would read its "
            "sources as root: prepare the data elsewhere, or read its files in the training code"
        )
        raise SpecError([FieldIssue("workload.data.prepare", message)])


def _local(uri: str) -> str | None:
    """Return the normal form of a local path; None for object storage."""
    path = uri.removeprefix("file://")
    return posixpath.normpath(path) if path.startswith("/") else None
