"""Settings of a control plane, read from flags or `REGROUP_*` environment variables."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from regroup.service.domain.settings import values
from regroup.service.domain.settings.exposure import Exposure, find_exposure_problem
from regroup.service.domain.settings.mail import find_mail_problem
from regroup.service.domain.topology import DOMAIN_LEVELS
from regroup.workers.contract.storage_uri import find_uri_problem
from regroup.workers.os.user_range import parse_user_range

_MIB = 2**20
_MAX_SIZE_BYTES = 2**50
_MAX_COUNT = 1_000_000
_LINK = r"^(https?://[^\s<>\"]+)?$"
_MAX_S = 10 * 365 * 86400.0
"""Longest time: ten years. It keeps every time that is computed from a setting within the range of the databases."""
_Seconds = Annotated[float, Field(ge=0, le=_MAX_S, allow_inf_nan=False)]
_PositiveSeconds = Annotated[float, Field(gt=0, le=_MAX_S, allow_inf_nan=False)]


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), Field(max_length=100)]


class Settings(BaseSettings):
    """Settings of one control plane. Each field is also an environment variable, for example `REGROUP_PORT=8500`."""

    model_config = SettingsConfigDict(env_prefix="REGROUP_", frozen=True, extra="forbid")
    _flags: frozenset[str] = PrivateAttr(frozenset())

    def __init__(self, **flags: Any) -> None:
        super().__init__(**flags)
        self._flags = frozenset(flags)

    state_dir: Path = Path("~/.regroup")
    """Folder of the database, the tokens, the process records and the default storage. Private to the user."""
    host: str = "127.0.0.1"
    """Address to listen on. All but loopback need TLS or a proxy with TLS, and `public_hosts`."""
    port: int = Field(default=8500, ge=0, le=65535)
    """Port to listen on; 0 selects a free port."""
    unix_socket: Path | None = None
    """Unix socket to listen on instead of an address. Only the server's user can connect."""
    tls_cert: Path | None = None
    """File with the certificate chain of the server, PEM."""
    tls_key: Path | None = None
    """File with the private key of `tls_cert`, PEM."""
    behind_proxy: bool = False
    """True if a proxy with TLS sends all requests. The server then trusts its `X-Forwarded-For`, and refuses all
    connections from other machines."""
    proxy_addresses: Texts = ("127.0.0.1", "::1")
    """Addresses or networks of that proxy, separated by commas."""
    oidc_issuer: str = Field(default="", max_length=2000)
    """URL of the OpenID Connect issuer whose tokens are accepted; empty for none."""
    oidc_audience: str = Field(default="", max_length=2000)
    """Audience (`aud`) that these tokens must have."""
    oidc_client_id: str = Field(default="", max_length=2000)
    """Client id with which `regroup login` signs in at the issuer; by default `oidc_audience`."""
    oidc_scopes: str = Field(default="openid email groups offline_access", max_length=2000)
    """Scopes that `regroup login` requests, separated by spaces."""
    oidc_subject_claim: str = Field(default="email", max_length=200)
    """Claim that names the identity."""
    oidc_groups_claim: str = Field(default="groups", max_length=200)
    """Claim with the groups of the identity. `group:NAME` can be a member of a project."""
    oidc_operator_groups: Texts = ()
    """Groups whose members are operators of the cluster, separated by commas."""
    kubernetes_audience: str = Field(default="", max_length=2000)
    """Audience of the tokens of Kubernetes service accounts that are accepted; empty for none. The server must run in
    the cluster."""
    kubernetes_operator_groups: Texts = ()
    """Groups of Kubernetes whose service accounts are operators of the cluster, separated by commas."""
    grafana_url: str = Field(default="", max_length=2000, pattern=_LINK)
    """Address of the dashboards in Grafana, to which the console links; empty for none."""
    ray_dashboard_url: str = Field(default="", max_length=2000, pattern=_LINK)
    """Address of the dashboard of Ray, to which the console links; empty for none."""
    public_url: str = Field(default="", max_length=2000, pattern=_LINK)
    """Address at which people open the console, which runs in experiment trackers get; empty for none."""
    public_hosts: Texts = ()
    """Host names under which clients reach the server, separated by commas. Others are refused, except loopback."""
    session_s: float = Field(default=12 * 3600.0, ge=60, le=30 * 86400.0)
    """Time after which a browser must sign in again."""
    token_file: Path | None = None
    """File with the token that clients of the API need. Default: `api.token` in `state_dir`, created at the first
    start."""
    database_url: str = ""
    """Database: `postgresql://…` or `sqlite:///…`. Default: a file in `state_dir`."""
    storage_uri: str = ""
    """Durable storage of jobs whose spec has no `storage_uri`: an absolute path, `file:///…`, `s3://…` or `gs://…`.
    Default: a folder in `state_dir`."""
    blob_uri: str = ""
    """Storage of code archives, readable by every node, in the forms of `storage_uri`. Default: a folder in
    `state_dir`."""
    upload_limit_bytes: int = Field(default=200 * _MIB, ge=1, le=_MAX_SIZE_BYTES)
    """Maximum size of a code archive, packed and unpacked."""
    blob_quota_bytes: int = Field(default=20 * 1024 * _MIB, ge=1, le=_MAX_SIZE_BYTES)
    """Maximum size of all code archives and unfinished uploads together. Beyond it, the server rejects new uploads."""
    blob_retention_s: _PositiveSeconds = 30 * 86400.0
    """Time after its last use at which a code archive is removed."""
    allow_faults: bool = False
    """Accept specs with `faults` or `disable_detectors`."""
    ray_address: str = ""
    """Ray cluster to join, as `host:port`. Default: start a local Ray cluster."""
    gateway_url: str = Field(default="", max_length=2000)
    """Gateway of a Ray cluster, as `https://HOST:PORT`, instead of `ray_address`; see docs/operations/gateway.md."""
    gateway_token_file: Path | None = None
    """File with the token of the gateway."""
    gateway_ca_file: Path | None = None
    """Certificates that may sign the one of the gateway, PEM. Default: those of the system."""
    clusters_file: Path | None = None
    """Clusters to serve, each behind its gateway, instead of one; YAML or JSON; see docs/operations/clusters.md."""
    local_nodes: int = Field(default=1, ge=0, le=64)
    """Number of training nodes of a local Ray cluster, in addition to its head."""
    slots_per_node: int = Field(default=2, ge=1, le=1024)
    """Number of CPU ranks that fit on each local node."""
    local_gpus_per_node: int | None = Field(default=None, ge=0, le=1024)
    """Number of CUDA devices of each local node. Default: the machine's devices, divided evenly. With a larger number
    Ray schedules devices that do not exist."""
    ray_dashboard: bool = True
    """Start the dashboard of the local Ray cluster. Without it, the server starts faster and Ray takes less memory."""
    ray_dashboard_port: int | None = Field(default=None, ge=0, le=65535)
    """Port of the dashboard of the local Ray cluster; 0 selects a free one. Default: 8265, or a free port if 8265 is in
    use."""
    restart_local_nodes: bool = True
    """Start a local node again when its processes have ended, and the local Ray cluster when its head has."""
    object_store_bytes: int = Field(default=100 * _MIB, ge=80 * _MIB, le=_MAX_SIZE_BYTES)
    """Size of Ray's object store on each local node. Training does not use the object store."""

    topology_labels: dict[str, str] = {}
    """Ray node label that names a node's domain, by level (`zone`, `block`, `rack`, `gpu_domain`). Default: the label
    that is usual for the level."""
    topology_file: Path | None = None
    """Slurm `topology.conf` or `topology.yaml` for levels without labels. The server reads the file again when it
    changes."""

    standby: bool = True
    """Run a standby agent, with torch imported, on each node with free capacity. Jobs then start in less than half
    of the time."""

    preflight: bool = True
    """Check a node before a job's first ranks start there: device results, free memory and disk, connectivity."""

    rank_users: str = Field(default="", max_length=40)
    """Range of user ids, for example `200000-265535`. Each job's processes then run as a user of their own on each
    node, and a node whose agents cannot switch users starts no ranks. Default: the user of the agents
    ([Isolation](../operations/isolation.md))."""

    autoscale: bool = False
    """Request nodes from Ray's autoscaler while jobs wait for devices."""
    autoscale_after_s: _Seconds = 30.0
    """Time that a job must have waited before the server requests nodes for it."""

    ifname: str | None = None
    """Network interface of ranks, for example `eth0`. Default: the interface of the node's address."""
    port_range: str | None = Field(default=None, pattern=r"^[0-9]{1,5}-[0-9]{1,5}$")
    """Ports on which ranks, stores and supervisors (datagrams) listen, for example `20000-29999`. Default: any free
    port."""

    gang_timeout_s: _PositiveSeconds = 60.0
    """Time within which all reservations of a job and its supervisor must be ready. Otherwise the server releases all
    of them."""
    replacement_wait_s: _PositiveSeconds = 30.0
    """Time for which a job that lost a node keeps its other nodes while no replacement is available. Then the job
    returns to the queue."""
    node_event_half_life_s: _PositiveSeconds = 3600.0
    """Time of use after which a past failure of a node counts half as much."""
    quarantine_s: _Seconds = 600.0
    """Duration of the first quarantine of a node that fails repeatedly; each further quarantine is twice as long. 0
    disables automatic quarantine."""
    ageing_s: _PositiveSeconds = 6 * 3600.0
    """Waiting time after which a queued job rises by one priority class."""
    min_run_s: _Seconds = 600.0
    """Time after it gets devices during which a job is not preempted."""
    low_utilization_threshold: float = Field(default=0.05, ge=0, lt=1)
    """Utilization of its devices below which a job is reported; 0 disables the report."""
    low_utilization_window_s: _PositiveSeconds = 1800.0
    """Time over which the utilization is measured."""
    low_utilization_suspend_s: _Seconds | None = None
    """Time after the report at which a job is suspended if its `preemptibility` is `full`. Default: never."""
    supervisor_silence_s: _PositiveSeconds = 30.0
    """Time without a reply from a supervisor after which its job shows a condition. Training continues."""
    sync_wait_s: _PositiveSeconds = 10.0
    """Maximum duration of a long poll of a supervisor without events. New intents end the poll at once."""
    lease_s: float = Field(default=15.0, gt=1, le=3600)
    """Time after which the leader's lease expires unless renewed."""
    reap_interval_s: _PositiveSeconds = 30.0
    """Time between searches for actors and reservations that no live job owns."""

    event_retention_s: _Seconds = 90 * 86400.0
    """Time after the end of a job at which its events are removed, except changes of its state; 0 keeps them."""
    step_retention_s: _Seconds = 180 * 86400.0
    """Time after the end of a job at which the metrics of its steps are removed; 0 keeps them. Its ledger is kept."""
    job_retention_s: _Seconds = 365 * 86400.0
    """Time after the end of a job at which it is removed from the database; 0 keeps it. Its checkpoints stay in
    storage. Jobs with pinned checkpoints, and jobs on which others depend, are kept."""
    idempotency_retention_s: _PositiveSeconds = 86400.0
    """Time for which a request with the same `Idempotency-Key` returns the same response."""

    audit_retention_s: _Seconds = 2 * 365 * 86400.0
    """Age at which audit records are removed; 0 keeps them. Export them before; see docs/operations/audit.md."""

    secrets_key_file: Path | None = None
    """File with the keys that encrypt stored secrets, one per line, the newest first. Default with SQLite:
    `secrets.key` in `state_dir`, created at the first start; with PostgreSQL: none. See docs/operations/secrets.md."""
    secrets_key: str = Field(default="", repr=False)
    """The keys themselves, separated by commas, instead of a file. Other users of the machine may see variables, so
    prefer the file."""

    prices: str = Field(default="", max_length=100_000)
    """Price table of device-hours: the path of a YAML or JSON file, or the table itself, which begins with `{`. See
    docs/operations/usage.md."""
    hook_retention_s: _Seconds = 30 * 86400.0
    """Age at which finished deliveries of hooks are removed from the log; 0 keeps them."""
    hook_private_networks: Texts = ()
    """Networks that are not public to which hooks may send, also without TLS, for example `10.20.0.0/16`, separated by
    commas. By default, hooks reach only public addresses; see docs/operations/hooks.md."""
    smtp_host: str = Field(default="", max_length=253)
    """Mail server for hooks of kind `email`; empty refuses them."""
    smtp_port: int = Field(default=587, ge=1, le=65535)
    """Port of the mail server."""
    smtp_tls: Literal["starttls", "tls", "off"] = "starttls"
    """Encryption of the connection to the mail server: `starttls`, `tls` from the beginning (port 465), or `off`."""
    smtp_sender: str = Field(default="", max_length=320, pattern=r"^$|^[^@\s<>\x00-\x1f\x7f]+@[A-Za-z0-9.-]+$")
    """Address from which e-mail is sent."""
    smtp_user: str = Field(default="", max_length=320)
    """User of the mail server; empty for none."""
    smtp_password_file: Path | None = None
    """File with the password of `smtp_user`. It is read at each delivery."""
    smtp_recipient_domains: Texts = ()
    """Domains to which hooks may send e-mail, separated by commas. Default: all."""

    header_timeout_s: _PositiveSeconds = 15.0
    """Time within which a client must send the headers of a request. Then the server closes the connection."""
    body_timeout_s: _PositiveSeconds = 30.0
    """Time without data after which the server rejects a request whose body is not complete."""
    write_timeout_s: _PositiveSeconds = 60.0
    """Time after which the server closes the connection to a client that reads nothing of its response."""
    requests_per_s: float = Field(default=50.0, ge=0, le=1e6, allow_inf_nan=False)
    """Requests per second of one identity in the long run; 0 sets no limit. The owner of the server has none."""
    request_burst: int = Field(default=500, ge=1, le=_MAX_COUNT)
    """Requests that one identity may send at once after a pause."""
    streams_per_identity: int = Field(default=1000, ge=1, le=_MAX_COUNT)
    """Number of streams (events, steps, logs, commands) that one identity may follow at the same time."""
    max_streams: int = Field(default=4000, ge=1, le=_MAX_COUNT)
    """Number of streams that all identities may follow at the same time."""
    uploads_per_identity: int = Field(default=8, ge=1, le=_MAX_COUNT)
    """Number of requests with a part of an archive that one identity may send at the same time."""
    queued_jobs_per_identity: int = Field(default=2000, ge=0, le=_MAX_COUNT)
    """Number of queued and suspended jobs of one identity; 0 sets no limit. The owner of the server has none."""

    @field_validator("topology_labels")
    @classmethod
    def _check_levels(cls, value: dict[str, str]) -> dict[str, str]:
        levels = [level.value for level in DOMAIN_LEVELS]
        if unknown := sorted(value.keys() - set(levels)):
            raise ValueError(f"topology_labels: unknown level {unknown[0]!r}; expected one of {', '.join(levels)}")
        return value

    @field_validator(
        "state_dir", "token_file", "unix_socket", "tls_cert", "tls_key", "smtp_password_file", "secrets_key_file",
        "gateway_token_file", "gateway_ca_file",
    )  # fmt: skip
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        return None if value is None or value == Path() else value.expanduser().absolute()

    @field_validator("public_hosts")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        values.check_host_names("public_hosts", value)
        return tuple(name.lower() for name in value)

    @field_validator("port_range")
    @classmethod
    def _check_ports(cls, value: str | None) -> str | None:
        if value is not None:
            values.check_port_range("port_range", value)
        return value

    @field_validator("rank_users")
    @classmethod
    def _check_users(cls, value: str) -> str:
        if value:
            parse_user_range(value)
        return value

    @field_validator("storage_uri", "blob_uri")
    @classmethod
    def _check_storage(cls, value: str) -> str:
        if value and (problem := find_uri_problem(value)):
            raise PydanticCustomError("storage_uri", "{problem}", {"problem": problem})
        return value

    @field_validator("proxy_addresses", "hook_private_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        values.check_networks(str(info.field_name), value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Check settings that depend on each other."""
        has_password = self.smtp_password_file is not None
        cluster = {name: getattr(self, name) for name in values.CLUSTER_SETTINGS}
        both_keys = self.secrets_key and self.secrets_key_file is not None
        problem = (
            find_mail_problem(
                self.smtp_host, self.smtp_sender, self.smtp_user, has_password=has_password, tls=self.smtp_tls
            )
            or (("secrets_key_file", "secrets_key has keys, too: give the file or the keys") if both_keys else None)
            or values.find_issuer_problem(self.oidc_issuer, self.oidc_audience)
            or values.find_cluster_problem(cluster)
            or find_exposure_problem(self._exposure)
        )
        if problem is not None:
            name, message = problem
            value = getattr(self, name)
            raise values.invalid_setting(name, str(value) if isinstance(value, Path) else value, message)
        return self

    @property
    def _exposure(self) -> Exposure:
        return Exposure(
            self.host,
            has_cert=self.tls_cert is not None,
            has_key=self.tls_key is not None,
            behind_proxy=self.behind_proxy,
            has_socket=self.unix_socket is not None,
            public_hosts=self.public_hosts,
        )

    @model_validator(mode="after")
    def _fill_defaults(self) -> Self:
        if not self.database_url:
            object.__setattr__(self, "database_url", f"sqlite:///{self.state_dir / 'regroup.db'}")
        if not self.storage_uri:
            object.__setattr__(self, "storage_uri", (self.state_dir / "storage").as_uri())
        if not self.blob_uri:
            object.__setattr__(self, "blob_uri", (self.state_dir / "blobs").as_uri())
        return self

    def source_of(self, name: str) -> Literal["flag", "environment", "default"]:
        """Return where the value of a setting comes from."""
        return "flag" if name in self._flags else "environment" if name in self.model_fields_set else "default"

    @property
    def has_tls(self) -> bool:
        """True if browsers reach the server over TLS."""
        return self.tls_cert is not None or self.behind_proxy

    @property
    def has_local_ray(self) -> bool:
        """True if the server starts a Ray cluster on this machine."""
        return not self.ray_address and not self.gateway_url and self.clusters_file is None

    @property
    def token_path(self) -> Path:
        """File of the token that clients of the API need."""
        return self.token_file or self.state_dir / "api.token"

    @property
    def ray_token_path(self) -> Path:
        """Token file of the local Ray cluster, readable by the user only."""
        return self.state_dir / "ray.token"
