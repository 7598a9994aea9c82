"""Clusters with the API and the client: the list, the cluster of a job, limits of projects, probes."""

from typing import Any

import pytest

from regroup.api.client.connection.errors import ApiError
from regroup.service.cluster_state.cluster_directory import ClusterDirectory
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.domain.errors import NotFoundError
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import Node
from regroup.service.observability.prometheus import Metrics
from regroup.service.settings import Settings
from regroup.service.spec.clusters import ClusterNames
from regroup.service.store.rows.records import Allocation, AllocationKind

NAMES = ClusterNames("east", ("west",))


def node(number: int, cluster: str = "", **fields: Any) -> Node:
    name = f"{cluster}:local-{number}" if cluster else f"local-{number}"
    return Node(f"{number}" * 40, name, "10.0.0.1", cpus=4, gpus=2, cluster=cluster, **fields)


@pytest.fixture
def east_and_west(live: Any) -> Any:
    """A server of two clusters. Its cached names are those of a clusters file."""
    live.services.__dict__["cluster_names"] = NAMES
    live.cluster.add_node(node(1))
    live.cluster.add_node(node(2, "west"))
    live.cluster.add_node(Node("c" * 40, "control", "10.0.0.9", is_control=True))
    return live


async def test_a_server_without_a_clusters_file_has_one(live: Any, make_spec: Any) -> None:
    live.cluster.add_node(node(1))
    (only,) = await live.client(lambda client: client.clusters())
    assert (only.name, only.is_default, only.answers, only.problem, only.nodes) == ("default", True, True, "", 1)
    assert (only.cpus, only.free_cpus, only.gpus, only.free_gpus) == (4, 4, 2, 2)
    live.cluster.reachable = False
    (only,) = await live.client(lambda client: client.clusters())
    assert not only.answers and only.problem
    job = await live.submit(resources={"cluster": "default"})
    assert job["spec"]["resources"]["cluster"] is None
    refused = await live.http.post("/v1/jobs", json=make_spec("other", resources={"cluster": "west"}))
    assert refused.status_code == 422
    (issue,) = refused.json()["errors"]
    assert issue["pointer"] == "/resources/cluster"
    assert issue["detail"] == "unknown cluster 'west'; clusters of this server: default"


async def test_clusters_and_their_nodes_are_listed(east_and_west: Any) -> None:
    found = await east_and_west.client(lambda client: client.clusters())
    assert [(each.name, each.is_default, each.nodes) for each in found] == [("east", True, 1), ("west", False, 1)]
    nodes = await east_and_west.client(lambda client: client.nodes())
    assert [(each.name, each.cluster) for each in nodes] == [("local-1", "east"), ("west:local-2", "west")]
    closed = await east_and_west.client(lambda client: client.cordon("west:local-2"))
    assert (closed.name, closed.health.status) == ("west:local-2", "cordoned")


async def test_a_node_of_a_cluster_that_does_not_answer_has_the_reason(east_and_west: Any) -> None:
    reason = "in a cluster that does not answer: the gateway is silent"
    east_and_west.cluster.add_node(node(3, "west", closed_reason=reason))
    found = {each.name: each for each in await east_and_west.client(lambda client: client.nodes())}
    health = found["west:local-3"].health
    assert (health.status, health.why) == ("unreachable", reason)


async def test_a_project_admits_clusters(east_and_west: Any, make_spec: Any) -> None:
    put = await east_and_west.http.put("/v1/projects/default", json={"admits": {"clusters": ["west"]}})
    assert put.status_code == 200, put.text
    refused = await east_and_west.http.post("/v1/jobs", json=make_spec())
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "resources.cluster: east is not allowed in project 'default'; set one of the allowed clusters: west"
    )
    job = await east_and_west.submit(resources={"cluster": "west"})
    assert job["spec"]["resources"]["cluster"] == "west"


async def test_a_default_of_a_project_names_the_cluster(east_and_west: Any) -> None:
    defaults = {"defaults": {"resources": {"cluster": "west"}}}
    assert (await east_and_west.http.put("/v1/projects/default", json=defaults)).status_code == 200
    assert (await east_and_west.submit())["spec"]["resources"]["cluster"] == "west"
    assert (await east_and_west.submit(name="b", resources={"cluster": "east"}))["spec"]["resources"]["cluster"] is None


async def test_a_probe_measures_one_cluster(east_and_west: Any) -> None:
    east_and_west.cluster.add_node(node(3, "west"))
    job = await east_and_west.client(lambda client: client.probe(device="cpu", cluster="west"))
    assert (job.spec.resources.cluster, job.spec.layout.dp.target) == ("west", 8)
    with pytest.raises(ApiError, match="unknown cluster 'north'; clusters of this server: east, west"):
        await east_and_west.client(lambda client: client.probe(cluster="north"))


async def test_the_database_knows_the_clusters_of_jobs_and_nodes(east_and_west: Any) -> None:
    store, directory = east_and_west.store, ClusterDirectory(east_and_west.store)
    here, there = await east_and_west.submit(), await east_and_west.submit(name="b", resources={"cluster": "west"})
    assert (await directory.cluster_of(here["id"]), await directory.cluster_of(there["id"])) == ("", "west")
    with pytest.raises(NotFoundError):
        await directory.cluster_of("j-none")
    placed = check_transition(there["id"], JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    data = {"ranks": 1, "device_kind": "cpu", "cpus": 1, "memory_bytes": 0, "name": "west:local-2"}
    row = Allocation(there["id"], AllocationKind.RESERVATION, f"regroup-reservation:{there['id']}:1", "2" * 40, data)
    await store.apply(east_and_west.lease, placed, now=1.0, allocate=[row])
    await east_and_west.client(lambda client: client.drain("local-1"))
    used = {each.name: (each.id, each.cluster) for each in await directory.used_nodes()}
    assert used == {"west:local-2": ("2" * 40, "west"), "local-1": ("1" * 40, "")}


async def test_a_metric_shows_the_clusters_that_answer(east_and_west: Any) -> None:
    settings: Settings = east_and_west.services.settings
    metrics = Metrics(east_and_west.store, rule_of(settings), cluster=east_and_west.cluster, cluster_names=NAMES)
    text = (await metrics.render()).decode()
    assert 'regroup_cluster_up{cluster="east"} 1.0' in text and 'regroup_cluster_up{cluster="west"} 1.0' in text
    east_and_west.cluster.reachable = False
    assert 'regroup_cluster_up{cluster="west"} 0.0' in (await metrics.render()).decode()
