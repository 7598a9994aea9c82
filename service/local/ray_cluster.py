"""A Ray cluster on this machine that outlives the server: a head for control, and nodes for training.

Every process has the cluster's id in its environment, so that `stop` kills exactly the processes that `start` began,
including detached ones. `ray.json` records the cluster before the first process starts.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from regroup.service.domain.errors import UnavailableError
from regroup.service.local import api_token, processes, secrets_key
from regroup.service.local.node_devices import divide_devices
from regroup.service.local.private_files import prepare_state_dir, write_private
from regroup.service.local.processes import Process
from regroup.service.settings import Settings
from regroup.workers.os import scratch_dir, umask

ROLE_LABEL = "regroup.io/role"
"""Node label: `control` carries supervisors, `training` carries ranks."""

DASHBOARD_PORT = 8265
"""Port of the dashboard unless it is in use: Ray's own default."""
_MARK = "REGROUP_RAY_CLUSTER"
_HEAD = "control"
_RECORD = "ray.json"
_START_TIMEOUT_S = 180.0
_TEMP_DIR_LIMIT = 40  # bytes: Ray appends 65, and the path of a unix socket has at most 107


class LocalRayError(UnavailableError):
    """The local Ray did not start."""


@dataclass(frozen=True)
class LocalRay:
    """Record of a local cluster in the state directory."""

    id: str
    address: str
    dashboard_url: str | None
    temp_dir: str
    token_path: str
    nodes: int
    slots_per_node: int
    daemons: tuple[Process, ...] = ()
    """Processes that ran when start-up was complete: GCS, raylets, dashboard, agents."""
    raylets: Mapping[str, Process] = field(default_factory=dict[str, Process])
    """Name of each node → its raylet. A node lives as long as this process."""

    @property
    def is_alive(self) -> bool:
        """True while the GCS and the raylet of the head run. The other nodes can join again."""
        names = {process.name for process in self.daemons if process.is_alive}
        head = self.raylets.get(_HEAD)
        return {"gcs_server", "raylet"} <= names and (head is None or head.is_alive)

    @property
    def lost_nodes(self) -> list[str]:
        """Names of the training nodes that have ended."""
        return sorted(name for name, raylet in self.raylets.items() if name != _HEAD and not raylet.is_alive)


def ray_environment(token_path: Path) -> dict[str, str]:
    """Return the variables that every process of a cluster with a token needs in its environment."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else a server under `uv run` ships its project to every worker
        # A machine without a network notices after 20 s without an answer, instead of two minutes. It then tries to
        # reach the cluster's head for one more minute, and kills the processes that run on it.
        "RAY_grpc_client_keepalive_timeout_ms": "20000",
        # Ray's agents would keep each counter and histogram of every process that has ended (docs/adr/0031). Its other
        # metrics backend forgets them two minutes after the end.
        "RAY_enable_open_telemetry": "0",
    }


def ensure(settings: Settings) -> tuple[LocalRay, bool]:
    """Return the running local cluster of this state directory, or start a new one.

    Returns:
        The cluster, and True if it was running already.
    """
    found = load(settings.state_dir)
    if found is not None and found.is_alive:
        return found, True
    stop(settings.state_dir)
    return start(settings), False


def load(state_dir: Path) -> LocalRay | None:
    """Load the record of the cluster that was last started here, alive or not; None if there is none."""
    try:
        data: dict[str, Any] = json.loads((state_dir / _RECORD).read_text())
    except FileNotFoundError:
        return None
    daemons = tuple(Process(**item) for item in data.pop("daemons"))
    raylets = {name: Process(**item) for name, item in data.pop("raylets", {}).items()}
    return LocalRay(**data, daemons=daemons, raylets=raylets)


def start(settings: Settings) -> LocalRay:
    """Start the head and the nodes as daemons.

    Raises:
        LocalRayError: the requested port of the dashboard is in use, or a node did not start. The error then has the
            end of the output of `ray start`; no process is left.
    """
    prepare_state_dir(settings.state_dir)
    write_private(settings.ray_token_path, secrets.token_hex(32))
    dashboard_port = _dashboard_port(settings.ray_dashboard_port) if settings.ray_dashboard else None
    (gcs_port,) = _free_ports(1)
    cluster = LocalRay(
        id=uuid4().hex,
        address=f"127.0.0.1:{gcs_port}",
        dashboard_url=None if dashboard_port is None else f"http://127.0.0.1:{dashboard_port}",
        temp_dir=_short_temp_dir(),
        token_path=str(settings.ray_token_path),
        nodes=settings.local_nodes,
        slots_per_node=settings.slots_per_node,
    )
    _save(settings.state_dir, cluster)
    head = [
        "--head", f"--port={gcs_port}", *_dashboard_flags(dashboard_port), "--no-monitor", "--num-cpus=0",
        "--num-gpus=0", f"--labels={ROLE_LABEL}=control", f"--node-name={_HEAD}",
    ]  # fmt: skip
    starting = [_StartingNode(_HEAD, head, {}, after_port=0)]
    starting += [_training_node(settings, cluster, number + 1) for number in range(settings.local_nodes)]
    try:
        _ray_start(settings, cluster, starting)
    except BaseException:
        stop(settings.state_dir)
        raise
    return _record_processes(settings, cluster, [node.name for node in starting])


def add_node(settings: Settings) -> str:
    """Add one training node to the running cluster, as if a node had been replaced, and return its name.

    Raises:
        LocalRayError: no local cluster runs here, or the node did not start.
    """
    cluster = load(settings.state_dir)
    if cluster is None or not cluster.is_alive:
        raise LocalRayError(
            f"no local Ray cluster runs on {settings.state_dir}: start one with `regroup serve --local-nodes N`"
        )
    number = 1 + max(int(path.name) for path in Path(cluster.temp_dir).iterdir() if path.name.isdecimal())
    node = _training_node(settings, cluster, number)
    _ray_start(settings, cluster, [node])
    _record_processes(
        settings, cluster, [*(name for name, each in cluster.raylets.items() if each.is_alive), node.name]
    )
    return node.name


def restart_node(settings: Settings, name: str) -> None:
    """Start a training node that has ended again, with its name and devices.

    Raises:
        LocalRayError: no local cluster runs here, or the node did not start.
        StillRunningError: a process of the former node cannot be ended.
    """
    cluster = load(settings.state_dir)
    if cluster is None or not cluster.is_alive:
        raise LocalRayError(f"no local Ray cluster runs on {settings.state_dir}, so its node {name} cannot start")
    processes.kill(processes.with_descendants(_find_of_node(cluster, name)))
    shutil.rmtree(_temp_dir(cluster, name), ignore_errors=True)
    _ray_start(settings, cluster, [_training_node(settings, cluster, int(name.removeprefix("local-")))])
    _record_processes(settings, cluster, [*cluster.raylets])


def node_processes(cluster: LocalRay, node_name: str) -> set[Process]:
    """Return all processes of one node of a local cluster; empty if the node is gone.

    These are its raylet, the template of its zygotes, and their descendants.
    """
    if _find_raylet(cluster, node_name) is None:
        return set()
    return processes.with_descendants(_find_of_node(cluster, node_name))


def find_processes(cluster: LocalRay) -> set[Process]:
    """Return every live process of a local cluster, jobs included."""
    return processes.with_descendants([*cluster.daemons, *processes.find_marked(_MARK, cluster.id)])


def scratch_holders() -> dict[int, Path]:
    """Return pid → scratch folder, of the agents that have a job on this machine."""
    return scratch_dir.holders()


def stop(state_dir: Path) -> bool:
    """Kill every process of the local cluster, jobs included, and remove its files.

    Returns:
        True if there was a cluster.
    """
    cluster = load(state_dir)
    if cluster is None:
        return False
    folders = set[Path]()
    # Repeat: a process that was being forked during one round has the mark in the next.
    while running := find_processes(cluster):
        holders = scratch_holders()
        folders |= {holders[process.pid] for process in running if process.pid in holders}
        processes.kill(running)
    for folder in folders:  # the agents that would have removed them are gone
        shutil.rmtree(folder, ignore_errors=True)
    scratch_dir.sweep()
    shutil.rmtree(cluster.temp_dir, ignore_errors=True)
    Path(cluster.token_path).unlink(missing_ok=True)
    (state_dir / _RECORD).unlink()
    return True


def _record_processes(settings: Settings, cluster: LocalRay, nodes: Sequence[str]) -> LocalRay:
    """Record the processes that run now, and the raylets of these nodes. A node without one keeps its former raylet."""
    raylets = {name: _find_raylet(cluster, name) or cluster.raylets.get(name) for name in nodes}
    found = {name: raylet for name, raylet in raylets.items() if raylet is not None}
    updated = replace(cluster, daemons=tuple(processes.find_marked(_MARK, cluster.id)), raylets=found)
    _save(settings.state_dir, updated)
    return updated


def _find_raylet(cluster: LocalRay, node_name: str) -> Process | None:
    socket_name = f"--raylet_socket_name={_temp_dir(cluster, node_name)}/".encode()
    for process in processes.find_marked(_MARK, cluster.id):
        if any(word.startswith(socket_name) for word in processes.command_line(process)):
            return process
    return None


def _find_of_node(cluster: LocalRay, node_name: str) -> list[Process]:
    """Return Ray's processes of a node and the template of its zygotes, also after the end of its raylet."""
    folder = f"{_temp_dir(cluster, node_name)}/".encode()
    found: list[Process] = []
    for process in processes.find_marked(_MARK, cluster.id):
        words = processes.command_line(process)
        is_template = b"regroup.workers.zygote.template" in words and node_name.encode() in words
        if is_template or any(folder in word for word in words):
            found.append(process)
    return found


@dataclass(frozen=True)
class _StartingNode:
    name: str
    flags: Sequence[str]
    environment: Mapping[str, str]
    after_port: int


def _training_node(settings: Settings, cluster: LocalRay, number: int) -> _StartingNode:
    """Return the flags of the `number`-th node, from 1. An added node gets the devices of the node that it replaces."""
    name = f"local-{number}"
    gpus, environment = divide_devices(settings, (number - 1) % settings.local_nodes)
    flags = [
        f"--address={cluster.address}", f"--num-cpus={cluster.slots_per_node}", f"--num-gpus={gpus}",
        f"--labels={ROLE_LABEL}=training", f"--node-name={name}",
    ]  # fmt: skip
    return _StartingNode(name, flags, environment, after_port=int(cluster.address.rpartition(":")[2]))


def _ray_start(settings: Settings, cluster: LocalRay, nodes: Sequence[_StartingNode]) -> None:
    """Start all nodes in parallel, and return when all are registered."""
    commands: list[dict[str, Any]] = []
    for node in nodes:
        # One temporary folder per node: two raylets that start at once in one folder race for the same socket names.
        temp_dir = _temp_dir(cluster, node.name)
        temp_dir.mkdir()
        flags = [
            *node.flags, f"--temp-dir={temp_dir}", "--node-ip-address=127.0.0.1", "--include-log-monitor=false",
            f"--object-store-memory={settings.object_store_bytes}", "--min-worker-port=0", "--max-worker-port=0",
            "--disable-usage-stats", "--log-style=record",
        ]  # fmt: skip
        commands.append(
            {"argv": flags, "environment": dict(node.environment), "output": str(temp_dir / "start.log"),
             "after_port": node.after_port}
        )  # fmt: skip
    clean = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    command = [sys.executable, "-m", "regroup.service.local.ray_start", json.dumps(commands)]
    try:
        process = subprocess.run(
            command,
            cwd=settings.state_dir,  # the working directory becomes sys.path[0] of every worker
            env={
                **clean, umask.VARIABLE: f"{umask.user_umask():03o}", **_DAEMON_ENVIRONMENT,
                **ray_environment(settings.ray_token_path), _MARK: cluster.id,
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            umask=umask.PRIVATE,
            start_new_session=True,  # Ctrl-C at the server must not reach Ray
            timeout=_START_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LocalRayError(
            f"the local Ray cluster did not start within {_START_TIMEOUT_S:.0f} s:\n{_log_tails(commands)}"
        ) from error
    if process.returncode != 0:
        raise LocalRayError(f"the local Ray cluster did not start:\n{process.stderr[-2000:]}{_log_tails(commands)}")


def _temp_dir(cluster: LocalRay, node_name: str) -> Path:
    return Path(cluster.temp_dir, node_name.removeprefix("local-")[:4])


def _log_tails(commands: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of the output of each `ray start`."""
    logs = [Path(command["output"]) for command in commands]
    return "\n".join(
        f"--- node {log.parent.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        for log in logs
        if log.exists()
    )


_OF_RAY = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_RUNTIME_ENV", "RAY_AUTH_TOKEN")
_NOT_INHERITED = frozenset({*_OF_RAY, "CUDA_VISIBLE_DEVICES", secrets_key.VARIABLE, *api_token.VARIABLES})
_DAEMON_ENVIRONMENT = {
    # Ray's memory monitor would kill an agent for the memory of its ranks; the kernel kills a rank first.
    "RAY_memory_monitor_refresh_ms": "0",
    # Agents reserve no devices themselves, but their ranks must see those of their reservations.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Each job leaves dead actors and workers. Ray's own limits would let GCS grow for as long as 100,000 of them.
    "RAY_maximum_gcs_destroyed_actor_cached_count": "500",
    "RAY_maximum_gcs_dead_worker_cached_count": "500",
    "RAY_task_events_max_num_task_in_gcs": "2000",
}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _dashboard_port(requested: int | None) -> int:
    """Return the port for the dashboard.

    Raises:
        LocalRayError: the requested port is in use.
    """
    if requested != 0:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", requested or DASHBOARD_PORT))
                return requested or DASHBOARD_PORT
            except OSError as error:
                if requested is not None:
                    raise LocalRayError(
                        f"port {requested} for the Ray dashboard is in use ({error}): choose another one with "
                        "REGROUP_RAY_DASHBOARD_PORT; 0 selects a free one"
                    ) from error
    return _free_ports(1)[0]


def _dashboard_flags(port: int | None) -> list[str]:
    if port is None:
        return ["--include-dashboard=false"]
    return [f"--dashboard-port={port}", "--dashboard-host=127.0.0.1"]


def _short_temp_dir() -> str:
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="rg-", dir=parent if len(parent.encode()) < _TEMP_DIR_LIMIT - 12 else "/tmp")


def _to_json(cluster: LocalRay) -> dict[str, Any]:
    raylets = {name: asdict(process) for name, process in cluster.raylets.items()}
    return {**asdict(cluster), "daemons": [asdict(process) for process in cluster.daemons], "raylets": raylets}


def _save(state_dir: Path, cluster: LocalRay) -> None:
    write_private(state_dir / _RECORD, json.dumps(_to_json(cluster), indent=2))
