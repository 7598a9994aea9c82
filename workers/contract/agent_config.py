"""Configuration with which an agent starts. Plain data, no torch, no ray."""

from dataclasses import dataclass, field
from typing import Any

from regroup.workers.os.secret_source import SecretSource


@dataclass(frozen=True)
class AgentConfig:
    """Configuration with which an agent starts: one job, one node."""

    job_id: str
    job_name: str
    node_id: str
    node_name: str
    address: str
    """The node's address as other nodes reach it."""
    supervisor: str
    """Name of the supervisor's actor."""
    storage_uri: str
    """The job's own folder in durable storage."""
    datasets_uri: str
    interpreter: str = ""
    """The job's Python; the platform's if empty."""
    requirements: tuple[str, ...] = ()
    """Requirements to install into a virtual environment of the job; none if empty."""
    base: str = "platform"
    """Further packages in that environment: `platform`, the platform's packages, or `none`."""
    needs: tuple[str, ...] = ()
    """Modules that a Python which is not the platform's must have for this job."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, SecretSource] = field(default_factory=dict[str, SecretSource])
    """Variable → where this node finds its value."""
    project_secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Secret of the project → its value. It is empty when the agent starts, because Ray keeps the arguments of the
    start. `receive_secrets` fills it in place, so that every part of the agent has the newest values."""
    code: str = ""
    """Content address of the job's own code, `sha256:…`; none if empty."""
    blob_uri: str = ""
    """Folder of code archives in durable storage."""
    code_limit_bytes: int = 200 * 2**20
    """Largest size of unpacked code."""
    preload: tuple[str, ...] = ()
    warmup: dict[str, Any] = field(default_factory=dict[str, Any])
    """Function that the zygote calls once before it forks: `target` (`module:function`) and `args`; may be empty."""
    cpus: int = 1
    """Threads of one rank."""
    log_dir: str = ""
    """Folder of rank logs. If empty, the Ray session's log folder, so that the Ray dashboard shows them."""
    ifname: str = ""
    """Network interface of collectives; the one that carries `address` if empty."""
    port_first: int = 0
    port_last: int = 0
    """Range of the store's port; any free port if 0."""
    mirror: bool = False
    """Other nodes mirror the snapshots of this node."""
    preflight: bool = False
    """A standby agent checks its node while it waits."""
    orphan_s: float = 600.0
    """Time without contact to a supervisor after which the ranks get SIGTERM."""
    termination_grace_s: float = 30.0
    """Time from that SIGTERM to SIGKILL."""
    collective_timeout_s: float = 300.0
    page_url: str = ""
    """Address of the job's page; empty if the address of the server is not known."""
    rank_users: str = ""
    """Range of user ids, `FIRST-LAST`. On each node the job's processes get one of their own; if empty, the agent's."""
