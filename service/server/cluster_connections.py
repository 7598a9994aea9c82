"""Connections of a control plane to its clusters: the local Ray, a Ray address, one gateway, or several."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from regroup.service.cluster_state.cluster_directory import ClusterDirectory
from regroup.service.cluster_state.topology import Topology
from regroup.service.domain.errors import UnavailableError
from regroup.service.local import ray_cluster
from regroup.service.local.api_token import ensure_token
from regroup.service.ports.cluster import Cluster
from regroup.service.ray_adapter.reach import check_reachable
from regroup.service.remote_cluster.client import WAIT_S, RemoteCluster
from regroup.service.remote_cluster.federation import PATIENCE_S, Federation
from regroup.service.settings import Settings
from regroup.service.spec.clusters import ClusterEntry, ClusterTable, names_of, read_clusters
from regroup.service.store.store import Store

_log = structlog.get_logger(__name__)


async def connect_clusters(settings: Settings, store: Store) -> Cluster:
    """Connect to the cluster, or the clusters, of the settings. Start the local Ray if they name none.

    Raises:
        ConflictError: the token or a certificate of a gateway cannot be used.
        LocalRayError: the local Ray did not start.
        SettingError: the clusters file is unreadable or invalid.
        TopologyError: the topology file is unreadable or invalid.
        UnavailableError: no cluster answers.
    """
    topology, table = Topology(settings), read_clusters(settings.clusters_file)
    topology.check()  # before anything starts: an invalid file is an error now, but only a warning later
    if table is not None:
        return await _connect_all(table, store, topology)
    if settings.gateway_url:
        return await _connect_gateway(settings, topology)
    address, dashboard = settings.ray_address, None
    if not address:
        local, was_there = await asyncio.to_thread(ray_cluster.ensure, settings)
        address, dashboard = local.address, local.dashboard_url
        if was_there and (local.nodes, local.slots_per_node) != (settings.local_nodes, settings.slots_per_node):
            _log.warning(
                "the running local Ray keeps its size; run `regroup down` first to change it",
                nodes=local.nodes,
                slots_per_node=local.slots_per_node,
            )
        os.environ.update(ray_cluster.ray_environment(settings.ray_token_path))
    else:
        await check_reachable(address)
    # Ray reads the environment on import, so import after it is set.
    from regroup.service.ray_adapter.cluster import RayCluster

    return await RayCluster.connect(address, dashboard, topology=topology)


async def _connect_gateway(settings: Settings, topology: Topology) -> Cluster:
    assert settings.gateway_token_file is not None, "Settings checks it"
    token = ensure_token(settings.gateway_token_file, create=False, setting="REGROUP_GATEWAY_TOKEN_FILE")
    remote = await RemoteCluster.connect(
        settings.gateway_url, token.value, ca_file=settings.gateway_ca_file, topology=topology
    )
    return remote.as_cluster()


async def _connect_all(table: ClusterTable, store: Store, topology: Topology) -> Cluster:
    """Connect to all clusters of the table. A cluster that does not answer yet may answer later."""
    remotes = {name: _open(name, entry) for name, entry in table.clusters.items()}
    await _wait_for_one(remotes)
    names = names_of(table)
    members = {names.internal(name): remote.as_cluster() for name, remote in remotes.items()}
    return Federation(members, ClusterDirectory(store), topology)


def _open(name: str, entry: ClusterEntry) -> RemoteCluster:
    token = ensure_token(Path(entry.token_file), create=False, setting=f"token_file of cluster {name}")
    ca_file = None if entry.ca_file is None else Path(entry.ca_file)
    return RemoteCluster.open(entry.gateway_url, token.value, ca_file=ca_file)


async def _wait_for_one(remotes: Mapping[str, RemoteCluster]) -> None:
    """Wait until one cluster answers, and a little longer for the others."""
    waits = {asyncio.ensure_future(remote.wait(WAIT_S)): name for name, remote in remotes.items()}
    left = set(waits)
    try:
        while left and all(each.exception() is not None for each in waits if each not in left):
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        if left:
            _, left = await asyncio.wait(left, timeout=PATIENCE_S)
    finally:
        for each in left:
            each.cancel()
    errors = {name: each.exception() for each, name in waits.items() if each not in left}
    problems = {name: str(errors.get(name, "no answer")) for name in remotes if errors.get(name, True) is not None}
    if len(problems) == len(remotes):
        raise UnavailableError("; ".join(f"cluster {name}: {problem}" for name, problem in problems.items()))
    for name, problem in problems.items():
        _log.warning("a cluster does not answer yet", cluster=name, reason=problem)
