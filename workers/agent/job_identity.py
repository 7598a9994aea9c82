"""The user as which the processes of a job run on one node, and the folders that this user gets."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.os import job_files, job_users, node_facts, process_user
from regroup.workers.os.start_errors import StartError
from regroup.workers.os.user_range import parse_user_range

HOME = "home"
"""Folder in the scratch folder: home, temporary files and working folder of the job's processes."""
_ENTER_BY_GROUP = 0o710


class UserUnavailable(StartError):
    """A job must run as a user of its own, and this node cannot provide one."""

    def __init__(self, node: str, reason: str) -> None:
        """`reason` is what the node lacks."""
        message = (
            f"node {node} starts no process of the job, because it cannot run ranks as a user of their own: {reason}. "
            "Start the agents as root, or unset REGROUP_RANK_USERS (docs/operations/isolation.md)"
        )
        super().__init__(message, is_of_node=True)


@dataclass(frozen=True)
class JobIdentity:
    """User of a job on a node."""

    user: int | None = None
    """Id of the user and of its group; None: the user of the agent."""
    home: Path = Path("/")
    """Folder of the user; only with a user."""
    node: str = ""
    obstacle: str = ""
    """Why the node cannot provide the user that the job needs; empty if it can."""

    def require(self) -> None:
        """Check that the job may run here.

        Raises:
            UserUnavailable: the job needs a user of its own, and this node cannot provide one.
        """
        if self.obstacle:
            raise UserUnavailable(self.node, self.obstacle)


SAME_USER = JobIdentity()
"""The user of the agent."""


def find_obstacle(rank_users: str) -> str:
    """Return why this process cannot provide users of the range; empty if it can, or if there is no range."""
    if not rank_users:
        return ""
    users = parse_user_range(rank_users)
    if obstacle := process_user.find_obstacle(users.first, users.last):
        return obstacle
    for path in (sys.executable, os.__file__, __file__):
        if (closed := process_user.find_closed(Path(path))) is not None:
            return f"other users cannot open {closed}, and the platform's Python needs {path}"
    return ""


def assign(config: AgentConfig, scratch: Path) -> JobIdentity:
    """Return the identity of a job on this node, and let its user enter the scratch folder. The folder must exist."""
    if not config.rank_users:
        return SAME_USER
    if obstacle := find_obstacle(config.rank_users):
        return JobIdentity(node=config.node_name, obstacle=obstacle)
    try:
        user = job_users.reserve(parse_user_range(config.rank_users), config.job_id, scratch)
    except OSError as error:
        return JobIdentity(node=config.node_name, obstacle=str(error))
    _close_session()
    home = scratch / HOME
    for folder in (home, home / "tmp", home / "compiled"):
        folder.mkdir(mode=0o700)
    job_files.assign_tree(home, user)
    os.chown(scratch, -1, user)
    scratch.chmod(_ENTER_BY_GROUP)  # the agent owns it: the job can replace nothing in it
    return JobIdentity(user, home, config.node_name)


def _close_session() -> None:
    """Close the folder of Ray's session, with its logs and sockets, to all users but this one."""
    if (logs := node_facts.session_log_dir()) is not None:
        with contextlib.suppress(OSError):
            logs.parent.chmod(0o700)
