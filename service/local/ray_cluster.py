"""A Ray cluster on this machine that outlives the server: a head for control, and nodes for training.

Every process carries the cluster's id in its environment, so that `stop` ends exactly what `start` began, however it
detached, and nothing else. What was started stands in `ray.json` before the first process exists.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from regroup.service.domain.errors import RegroupError
from regroup.service.local import processes
from regroup.service.local.processes import Process
from regroup.service.settings import Settings

ROLE_LABEL = "regroup.io/role"
"""Node label: `control` carries supervisors, `training` carries ranks."""

_MARK = "REGROUP_RAY_CLUSTER"
_RECORD = "ray.json"
_START_TIMEOUT_S = 90.0
_TEMP_DIR_LIMIT = 40  # bytes: Ray puts 65 more behind it, and a unix socket's path holds 107


class LocalRayError(RegroupError):
    """The local Ray did not start."""


@dataclass(frozen=True)
class LocalRay:
    """A local cluster as recorded in the state directory."""

    id: str
    address: str
    dashboard_url: str
    temp_dir: str
    token_path: str
    nodes: int
    slots_per_node: int
    daemons: tuple[Process, ...] = ()
    """What ran when start-up was complete: GCS, raylets, dashboard, agents."""

    @property
    def is_alive(self) -> bool:
        """Its GCS and at least one raylet run."""
        names = {process.name for process in self.daemons if process.is_alive}
        return {"gcs_server", "raylet"} <= names


def ray_environment(token_path: Path) -> dict[str, str]:
    """What every process that takes part in a cluster with a token needs in its environment."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else a server under `uv run` ships its project to every worker
        # A machine that is cut off learns it when packets stay unanswered for so long, not only after two minutes; it
        # then tries to reach the cluster's head for one more, and ends what runs on it.
        "RAY_grpc_client_keepalive_timeout_ms": "20000",
    }


def ensure(settings: Settings) -> tuple[LocalRay, bool]:
    """The local cluster of this state directory: the one that runs, or a new one.

    Returns:
        The cluster, and whether it was there already.
    """
    found = load(settings.state_dir)
    if found is not None and found.is_alive:
        return found, True
    stop(settings.state_dir)
    return start(settings), False


def load(state_dir: Path) -> LocalRay | None:
    """The cluster last started here, alive or not."""
    try:
        data: dict[str, Any] = json.loads((state_dir / _RECORD).read_text())
    except FileNotFoundError:
        return None
    daemons = tuple(Process(**item) for item in data.pop("daemons"))
    return LocalRay(**data, daemons=daemons)


def start(settings: Settings) -> LocalRay:
    """Start head and nodes, as daemons.

    Raises:
        LocalRayError: with the end of what `ray start` printed; nothing is left running.
    """
    settings.prepare_state_dir()
    _write_private(settings.ray_token_path, secrets.token_hex(32))
    gcs_port, dashboard_port = _free_ports(2)
    cluster = LocalRay(
        id=uuid4().hex,
        address=f"127.0.0.1:{gcs_port}",
        dashboard_url=f"http://127.0.0.1:{dashboard_port}",
        temp_dir=_short_temp_dir(),
        token_path=str(settings.ray_token_path),
        nodes=settings.local_nodes,
        slots_per_node=settings.slots_per_node,
    )
    _save(settings.state_dir, cluster)
    head = [
        "--head", f"--port={gcs_port}", f"--dashboard-port={dashboard_port}", "--dashboard-host=127.0.0.1",
        "--no-monitor", "--num-cpus=0", "--num-gpus=0",
        f"--labels={ROLE_LABEL}=control", "--node-name=control",
    ]  # fmt: skip
    starting = [_StartingNode("control", head, {}, after_port=0)]
    starting += [_training_node(settings, cluster, number + 1) for number in range(settings.local_nodes)]
    try:
        _ray_start(settings, cluster, starting)
    except BaseException:
        stop(settings.state_dir)
        raise
    cluster = replace(cluster, daemons=tuple(processes.marked(_MARK, cluster.id)))
    _save(settings.state_dir, cluster)
    return cluster


def add_node(settings: Settings) -> str:
    """Start one more node for training beside those of the running cluster, as if one had been replaced; its name.

    Raises:
        LocalRayError: no local cluster runs here, or the node did not start.
    """
    cluster = load(settings.state_dir)
    if cluster is None or not cluster.is_alive:
        raise LocalRayError(
            f"no local Ray runs on {settings.state_dir}: start one with `regroup serve --local-nodes N`"
        )
    number = 1 + max(int(path.name) for path in Path(cluster.temp_dir).iterdir() if path.name.isdecimal())
    node = _training_node(settings, cluster, number)
    _ray_start(settings, cluster, [node])
    _save(settings.state_dir, replace(cluster, daemons=tuple(processes.marked(_MARK, cluster.id))))
    return node.name


def processes_of(cluster: LocalRay, node_name: str) -> set[Process]:
    """Everything that runs on one node of a local cluster: its raylet, and all below it; empty if it is gone."""
    socket_name = f"--raylet_socket_name={_temp_dir(cluster, node_name)}/".encode()
    raylets = [
        process
        for process in processes.marked(_MARK, cluster.id)
        if any(word.startswith(socket_name) for word in processes.command(process))
    ]
    return processes.with_descendants(raylets)


def stop(state_dir: Path) -> bool:
    """End every process of the local cluster, jobs included, and remove its files.

    Returns:
        Whether there was one.
    """
    cluster = load(state_dir)
    if cluster is None:
        return False
    # More than one round: what was being forked during the first carries the mark in the next.
    while running := processes.with_descendants([*cluster.daemons, *processes.marked(_MARK, cluster.id)]):
        processes.kill(running)
    shutil.rmtree(cluster.temp_dir, ignore_errors=True)
    Path(cluster.token_path).unlink(missing_ok=True)
    (state_dir / _RECORD).unlink()
    return True


@dataclass(frozen=True)
class _StartingNode:
    name: str
    flags: Sequence[str]
    environment: Mapping[str, str]
    after_port: int


def _training_node(settings: Settings, cluster: LocalRay, number: int) -> _StartingNode:
    """The `number`-th node, from 1. One beyond the first has the devices of one that it stands for."""
    name = f"local-{number}"
    gpus, environment = _gpus(settings, (number - 1) % settings.local_nodes)
    flags = [
        f"--address={cluster.address}", f"--num-cpus={cluster.slots_per_node}", f"--num-gpus={gpus}",
        f"--labels={ROLE_LABEL}=training", f"--node-name={name}",
    ]  # fmt: skip
    return _StartingNode(name, flags, environment, after_port=int(cluster.address.rpartition(":")[2]))


def _ray_start(settings: Settings, cluster: LocalRay, nodes: Sequence[_StartingNode]) -> None:
    """Start all nodes side by side; returns when all are registered."""
    orders: list[dict[str, Any]] = []
    for node in nodes:
        # Own temp dirs: two raylets that start together in one would race for the same socket names.
        temp_dir = _temp_dir(cluster, node.name)
        temp_dir.mkdir()
        flags = [
            *node.flags, f"--temp-dir={temp_dir}", "--node-ip-address=127.0.0.1", "--include-log-monitor=false",
            f"--object-store-memory={settings.object_store_bytes}", "--min-worker-port=0", "--max-worker-port=0",
            "--disable-usage-stats", "--log-style=record",
        ]  # fmt: skip
        orders.append(
            {"argv": flags, "environment": dict(node.environment), "output": str(temp_dir / "start.log"),
             "after_port": node.after_port}
        )  # fmt: skip
    clean = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    command = [sys.executable, "-m", "regroup.service.local.ray_start", json.dumps(orders)]
    try:
        ended = subprocess.run(
            command,
            cwd=settings.state_dir,  # the working directory becomes sys.path[0] of every worker
            env={**clean, **_DAEMON_ENVIRONMENT, **ray_environment(settings.ray_token_path), _MARK: cluster.id},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,  # Ctrl-C at the server must not reach Ray
            timeout=_START_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LocalRayError(f"the local Ray did not start within {_START_TIMEOUT_S:.0f} s:\n{_said(orders)}") from error
    if ended.returncode != 0:
        raise LocalRayError(f"the local Ray did not start:\n{ended.stderr[-2000:]}{_said(orders)}")


def _temp_dir(cluster: LocalRay, node_name: str) -> Path:
    return Path(cluster.temp_dir, node_name.removeprefix("local-")[:4])


def _said(orders: Sequence[Mapping[str, Any]]) -> str:
    """The end of what each `ray start` printed."""
    logs = [Path(order["output"]) for order in orders]
    return "\n".join(
        f"--- node {log.parent.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        for log in logs
        if log.exists()
    )


_NOT_INHERITED = frozenset(
    {"RAY_ADDRESS", "RAY_NAMESPACE", "RAY_RUNTIME_ENV", "RAY_AUTH_TOKEN", "CUDA_VISIBLE_DEVICES"}
)
_DAEMON_ENVIRONMENT = {
    # Ray's memory monitor would kill an agent for the memory of its ranks; the kernel takes a rank first.
    "RAY_memory_monitor_refresh_ms": "0",
    # Agents hold no devices themselves, yet their ranks must see those of their reservations.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def _gpus(settings: Settings, index: int) -> tuple[int, dict[str, str]]:
    """CUDA devices of a node, and the environment that shows it only those. Make-believe ones show nothing."""
    visible = _visible_devices()
    wanted = settings.local_gpus_per_node
    count = len(visible) // max(1, settings.local_nodes) if wanted is None else wanted
    if count and count * settings.local_nodes <= len(visible):
        return count, {"CUDA_VISIBLE_DEVICES": ",".join(visible[index * count : (index + 1) * count])}
    return count, {}


def _visible_devices() -> list[str]:
    """Devices of this machine that the server's own environment lets it use."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [device for device in chosen.split(",") if device.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _short_temp_dir() -> str:
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="rg-", dir=parent if len(parent.encode()) < _TEMP_DIR_LIMIT - 12 else "/tmp")


def _plain(cluster: LocalRay) -> dict[str, Any]:
    return {**asdict(cluster), "daemons": [asdict(process) for process in cluster.daemons]}


def _save(state_dir: Path, cluster: LocalRay) -> None:
    _write_private(state_dir / _RECORD, json.dumps(_plain(cluster), indent=2))


def _write_private(path: Path, text: str) -> None:
    """Readable by this user alone, and whole or not there."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
