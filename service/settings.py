"""What the operator of a control plane sets, from flags or `REGROUP_*` environment variables."""

import ipaddress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from regroup.service.domain.topology import DOMAIN_LEVELS

_MIB = 2**20


class Settings(BaseSettings):
    """One control plane. Every field is also an environment variable: `REGROUP_PORT=8500`."""

    model_config = SettingsConfigDict(env_prefix="REGROUP_", frozen=True, extra="forbid")

    state_dir: Path = Path("~/.regroup")
    """Database, token, records of what was started, default storage. Private to the user."""
    host: str = "127.0.0.1"
    port: int = Field(8500, ge=0, le=65535)
    """0 takes a free one."""
    database_url: str = ""
    """`postgresql://…`, or `sqlite:///…`; a file in `state_dir` if empty."""
    storage_uri: str = ""
    """Where jobs without a `storage_uri` of their own keep theirs; a folder in `state_dir` if empty."""
    blob_uri: str = ""
    """Where archives of code are kept, for every node to read; a folder in `state_dir` if empty."""
    upload_limit_bytes: int = Field(200 * _MIB, ge=1)
    """Largest archive of code that is taken."""
    blobs_kept_s: float = Field(30 * 86400.0, gt=0)
    """An archive that no job used for so long is removed."""
    allow_faults: bool = False
    """Honour `faults` and `blind_to` of a spec."""

    ray_address: str = ""
    """`host:port` of a Ray cluster to join; a local one is started if empty."""
    local_nodes: int = Field(1, ge=0, le=64)
    """Ray nodes for training that a local Ray starts beside its head."""
    slots_per_node: int = Field(2, ge=1)
    """CPU ranks that fit on each local node."""
    local_gpus_per_node: int | None = Field(None, ge=0)
    """CUDA devices of each local node; the machine's, dealt evenly, if absent. More than it has are make-believe."""
    object_store_bytes: int = Field(100 * _MIB, ge=80 * _MIB)
    """Ray's object store, per local node. Training does not use it."""

    topology_labels: dict[str, str] = {}
    """Level → label of a Ray node that names its domain of it, where that is not the usual one: levels are `zone`,
    `block`, `rack` and `gpu_domain`."""
    topology_file: Path | None = None
    """Slurm's `topology.conf` or `topology.yaml`, for what labels do not say; read again when it changes."""

    standby: bool = True
    """Keep an agent in waiting, with torch imported, where there is room: a job starts in a third of the time."""

    preflight: bool = True
    """Check a node before a job's first ranks there: devices compute right, there is room, others are reached."""

    autoscale: bool = False
    """Ask Ray's autoscaler for nodes while jobs wait for devices."""
    autoscale_after_s: float = Field(30.0, ge=0)
    """A job that has waited for less may yet find room by itself."""

    ifname: str | None = None
    """Network interface of ranks, e.g. `eth0`; found from the node's address if absent."""
    port_range: str | None = Field(None, pattern=r"^\d+-\d+$")
    """Ports that ranks, stores and supervisors (datagrams) listen on, e.g. `20000-29999`; any free ones if absent."""

    gang_timeout_s: float = Field(60.0, gt=0)
    """All reservations of a job, and the supervisor's first word, are there within this, or all are given back."""
    spare_wait_s: float = Field(30.0, gt=0)
    """A job that lost a node holds the others for so long while none can take its place; then it queues again."""
    node_half_life_s: float = Field(3600.0, gt=0)
    """Time of use in which what happened to a node comes to count half as much."""
    quarantine_s: float = Field(600.0, ge=0)
    """A node that fails again and again gets no ranks for so long, twice as long the next time; 0: never by itself."""
    ageing_s: float = Field(6 * 3600.0, gt=0)
    """A job that waits rises by one class of priority in each such time."""
    least_run_s: float = Field(600.0, ge=0)
    """A job that was given devices is not asked to make room for others before."""
    low_use: float = Field(0.05, ge=0, lt=1)
    """A job that makes use of less than this share of its devices is told of; 0: none is."""
    low_use_after_s: float = Field(1800.0, gt=0)
    """Measured over so long."""
    low_use_suspend_s: float | None = Field(None, ge=0)
    """One that goes on so for this long is suspended, if its `preemptibility` is `full`; never if absent."""
    supervisor_silence_s: float = Field(60.0, gt=0)
    """A supervisor silent for so long is shown as a condition of its job; training goes on meanwhile."""
    sync_wait_s: float = Field(10.0, gt=0)
    """How long a supervisor may hold a long poll without news; intents cut it short."""
    lease_s: float = Field(15.0, gt=1)
    """How long a leader leads without renewing."""
    reap_every_s: float = Field(30.0, gt=0)
    """Time between searches for actors and reservations that no live job owns."""

    @field_validator("topology_labels")
    @classmethod
    def _known_levels(cls, value: dict[str, str]) -> dict[str, str]:
        known = [level.value for level in DOMAIN_LEVELS]
        if unknown := sorted(value.keys() - set(known)):
            raise ValueError(f"topology_labels: {unknown[0]!r} is no level; levels are {', '.join(known)}")
        return value

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("host")
    @classmethod
    def _loopback_only(cls, value: str) -> str:
        if value != "localhost" and not _is_loopback(value):
            raise ValueError(
                f"host {value!r} is not a loopback address: the API has no access control yet, and whoever reaches it "
                "runs code here; say 127.0.0.1 and reach it through an SSH tunnel or a proxy that authenticates"
            )
        return value

    @field_validator("blob_uri")
    @classmethod
    def _the_same_everywhere(cls, value: str) -> str:
        if value and not urlsplit(value).scheme and not value.startswith("/"):
            raise ValueError(
                f"blob_uri {value!r} is relative, which means another folder on every node; "
                "give an absolute path or a URI such as s3://bucket/blobs"
            )
        return value

    @model_validator(mode="after")
    def _defaults_in_state_dir(self) -> Self:
        if not self.database_url:
            object.__setattr__(self, "database_url", f"sqlite:///{self.state_dir / 'regroup.db'}")
        if not self.storage_uri:
            object.__setattr__(self, "storage_uri", (self.state_dir / "storage").as_uri())
        if not self.blob_uri:
            object.__setattr__(self, "blob_uri", (self.state_dir / "blobs").as_uri())
        return self

    @property
    def ray_token_path(self) -> Path:
        """Token of the local Ray, readable by the user alone."""
        return self.state_dir / "ray.token"

    def prepare_state_dir(self) -> None:
        """Make it, closed to others."""
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
