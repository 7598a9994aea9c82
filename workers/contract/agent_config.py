"""What an agent knows from birth: one job, one node. Plain data, no torch, no ray."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AgentConfig:
    """What an agent knows from birth: one job, one node."""

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
    """What pip installs into a Python of the job's own; none if empty."""
    base: str = "platform"
    """What that Python sees beside them: `platform`, the platform's packages, or `none`."""
    needs: tuple[str, ...] = ()
    """Modules that a Python which is not the platform's must have for this job."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Variable → where this node finds its value: `from_env`, `from_file` or `from_kubernetes` (`name` and `key`)."""
    code: str = ""
    """Content address of the job's own code, `sha256:…`; none if empty."""
    blob_uri: str = ""
    """Where archives of code are kept."""
    preload: tuple[str, ...] = ()
    rehearsal: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the zygote does once before it forks: `target` (`module:function`) and its `args`; empty: nothing."""
    cpus: int = 1
    """Threads of one rank."""
    log_dir: str = ""
    """Where rank logs go; the Ray session's log folder if empty, so that the Ray dashboard shows them."""
    ifname: str = ""
    """Network interface of collectives; the one that carries `address` if empty."""
    port_first: int = 0
    port_last: int = 0
    """Range of the store's port; any free port if 0."""
    mirror: bool = False
    """Other nodes hold what is in this one's memory too."""
    preflight: bool = False
    """Of an agent in waiting: it checks its node meanwhile."""
    orphan_s: float = 600.0
    """Without word from a supervisor for so long, the ranks are ended."""
    collective_timeout_s: float = 300.0
