"""A control plane as one process: state directory, local Ray, store, controller, metrics. The API uses it."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from regroup.service.blobs.garbage_collection import run_garbage_collection
from regroup.service.blobs.usage import BlobUsage, run_measurement
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.controller.controller import Controller
from regroup.service.domain.errors import ConflictError
from regroup.service.domain.limits import Limit
from regroup.service.local import processes, program_end, ray_cluster
from regroup.service.local.allocator import run_memory_trim
from regroup.service.local.private_files import write_private
from regroup.service.local.processes import Process
from regroup.service.local.program_end import EndedPrograms
from regroup.service.local.repair import NodeStarts, repair_local_ray
from regroup.service.local.secrets_key import KeySource
from regroup.service.observability.job_totals import count_finished_jobs
from regroup.service.observability.prometheus import Metrics
from regroup.service.operations.access.audit import run_sealing
from regroup.service.operations.assembly.services import Services
from regroup.service.operations.hooks.delivery import HookDelivery
from regroup.service.operations.retention import RetentionPolicy, run_retention
from regroup.service.operations.secrets import run_encryption
from regroup.service.operations.usage import run_folding
from regroup.service.server.cluster_connections import connect_clusters
from regroup.service.settings import Settings
from regroup.service.spec.clusters import names_of, read_clusters
from regroup.service.spec.prices import read_prices
from regroup.service.store.store import Store
from regroup.service.tasks.server_tasks import ServerTasks

_RECORD = "server.json"
_STOP_PATIENCE_S = 15.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ServerRecord:
    """The content of `server.json`: the running server."""

    url: str
    dashboard_url: str | None
    pid: int
    started: int
    """Start of the process in clock ticks after boot. A later process with the same pid has another start."""
    token_path: str = ""
    """File of the token that clients need."""

    @property
    def process(self) -> Process:
        """Process of the server, alive or not."""
        return Process(self.pid, self.started, "server")


@asynccontextmanager
async def control_plane(settings: Settings, head_lost: asyncio.Event | None = None) -> AsyncGenerator[Services]:
    """Start everything that requests need, and stop it when the block ends. Jobs and the local Ray continue.

    Args:
        head_lost: set when the head of the local Ray cluster has ended, so that the server must start again.

    Raises:
        ConflictError: another server has this state directory.
        LocalRayError: the local Ray did not start.
        SettingError: the price table or the clusters file is unreadable or invalid.
        TopologyError: the topology file is unreadable or invalid.
        UnavailableError: the database or the cluster does not answer.
    """
    prices = read_prices(settings.prices)  # before anything starts: an invalid table is an error now
    keys = KeySource(settings)
    keys.prepare()
    store = await Store.open(settings.database_url, idempotency_kept_s=settings.idempotency_retention_s)
    try:
        cluster = await connect_clusters(settings, store)
        controller = Controller(store, cluster, settings, keys=keys)
        tasks, usage, refusals = ServerTasks(controller.passes), BlobUsage(), Counter[Limit]()
        starts = NodeStarts() if settings.has_local_ray and settings.restart_local_nodes else None
        metrics = Metrics(store, rule_of(settings), cluster=cluster, tasks=tasks, blob_bytes=lambda: usage.bytes,
                          local_node_starts=lambda: {} if starts is None else asdict(starts),
                          prices=prices, refusals=refusals, keys=keys,
                          jobs_isolated=bool(settings.rank_users),
                          cluster_names=names_of(read_clusters(settings.clusters_file)))  # fmt: skip
        services = Services(store, cluster, settings, render_metrics=metrics.render, tasks=tasks, refusals=refusals,
                            keys=keys, checks={"controller": controller.check,
                                               "last_pass": controller.check_passes})  # fmt: skip
        tasks.add("controller", controller.run)
        tasks.add("garbage collection of code archives", lambda: run_garbage_collection(services.blobs, store))
        tasks.add("measurement of code archives", lambda: run_measurement(services.blobs, usage))
        tasks.add("count of finished jobs", lambda: count_finished_jobs(store))
        tasks.add("storage of the use of ended jobs", lambda: run_folding(store))
        tasks.add("sealing of audit records", lambda: run_sealing(store))
        tasks.add("delivery of notifications", HookDelivery(store, settings, lambda: controller.lease, keys=keys).run)
        tasks.add("encryption of stored secrets", lambda: run_encryption(services.secrets))
        tasks.add("removal of old history", lambda: run_retention(store, RetentionPolicy.of(settings)))
        tasks.add("return of unused memory", run_memory_trim)
        if starts is not None:
            lost = head_lost or asyncio.Event()
            tasks.add("repair of the local Ray cluster", lambda: repair_local_ray(settings, lost, starts))
        async with tasks.run():
            yield services
    finally:
        await store.close()


def refuse_second(state_dir: Path) -> None:
    """Check that no server uses this state directory; raise ConflictError with its address if one does."""
    record = read_record(state_dir)
    if record is not None and record.process.is_alive:
        raise ConflictError(
            f"a server already runs on {state_dir}: process {record.pid} at {record.url}; "
            "use it, stop it with `regroup down`, or choose another directory with --state-dir"
        )


def write_record(state_dir: Path, url: str, dashboard_url: str | None, token_path: Path) -> ServerRecord:
    """Write the record of this server, for other processes. The caller does this when the server is ready."""
    me = processes.find_process(os.getpid())
    assert me is not None, "this process exists"
    record = ServerRecord(url, dashboard_url, me.pid, me.started, str(token_path))
    write_private(state_dir / _RECORD, json.dumps(asdict(record)))
    return record


def read_record(state_dir: Path) -> ServerRecord | None:
    """Return the record of the last server on this state directory, alive or not; None if there is none."""
    try:
        return ServerRecord(**json.loads((state_dir / _RECORD).read_text()))
    except FileNotFoundError:
        return None


def remove_record(state_dir: Path) -> None:
    """Remove the record of this server."""
    (state_dir / _RECORD).unlink(missing_ok=True)


def end_all(
    state_dir: Path, grace_s: float = 0.0, on_wait: Callable[[int, float], None] = lambda alive, left_s: None
) -> list[str]:
    """Stop the server and the local Ray of this state directory, by pid.

    Args:
        state_dir: The server's state directory.
        grace_s: Time from SIGTERM to SIGKILL for the programs of jobs; 0 sends no SIGTERM.
        on_wait: Called often in this time, with the number of programs and the rest of the time in seconds.

    Returns:
        Descriptions of the stopped processes, for people.
    """
    ended: list[str] = []
    record = read_record(state_dir)
    if record is not None:
        if record.process.is_alive:
            processes.stop(record.process, _STOP_PATIENCE_S)
            ended.append(f"server {record.url} (process {record.pid})")
        remove_record(state_dir)
    cluster = ray_cluster.load(state_dir)
    if cluster is not None and grace_s > 0:
        programs = program_end.end_programs(lambda: ray_cluster.find_processes(cluster), grace_s, on_wait)
        if programs.count:
            ended.append(_describe(programs))
    if cluster is not None and ray_cluster.stop(state_dir):
        ended.append(f"local Ray {cluster.address} ({cluster.nodes} nodes), and the jobs on it")
    return ended


def _describe(programs: EndedPrograms) -> str:
    text = f"{programs.count} program{'' if programs.count == 1 else 's'} of jobs with SIGTERM"
    return f"{text}, {programs.alive} of them killed" if programs.alive else text
