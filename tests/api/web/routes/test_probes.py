"""Probes with the API: the job of a request, and the results of a successful probe."""

from typing import Any

import pytest

from regroup.api.cli.commands.cluster.probe import describe_probe
from regroup.api.cli.commands.cluster.topology import ranges, tree_lines
from regroup.api.client.connection.errors import ApiError
from regroup.service.cluster_state.node_health import rule_of
from regroup.service.cluster_state.probe_results import FUNCTION
from regroup.service.domain.states import JobState
from regroup.service.domain.topology import DEFAULT_LABELS, Level
from regroup.service.observability.prometheus import Metrics
from regroup.service.ports.cluster import Node
from tests.support.inputs.probe_output import end, probe_result


def node(name: str, gpus: float = 0) -> Node:
    labels = {DEFAULT_LABELS[Level.RACK]: f"rack-{name}"}
    return Node(name * 40, f"node-{name}", "10.0.0.1", cpus=4, free_cpus=4, gpus=gpus, free_gpus=gpus, labels=labels)


async def probed(live: Any, result: dict[str, Any]) -> str:
    """Store a successful probe of two nodes with this result."""
    job = await live.client(lambda client: client.probe())
    await end(live.store, live.lease, job.id, result, ["node-a", "node-b"])
    assert (await live.store.job(job.id)).state is JobState.SUCCEEDED
    return job.id


async def test_a_probe_uses_all_ranks_that_fit_on_the_open_nodes(live: Any) -> None:
    for each in (node("a"), node("b"), node("c")):
        live.cluster.add_node(each)
    live.cluster.add_node(Node("d" * 40, "control", "10.0.0.9", cpus=64, is_control=True))
    await live.client(lambda client: client.cordon("node-c"))
    job = await live.client(lambda client: client.probe(cpus=2))
    assert (job.name, job.state, job.steps) == ("probe-cpu", "QUEUED", 8)
    spec = (await live.store.job(job.id)).parsed_spec()
    assert spec.workload.kind == "function" and spec.workload.function == FUNCTION
    assert [layout.world_size for layout in spec.ladder] == [4] and spec.resources.cpus == 2
    with pytest.raises(ApiError, match="has a live job named"):
        await live.client(lambda client: client.probe())


async def test_the_device_is_cuda_if_the_cluster_has_gpus(live: Any) -> None:
    with pytest.raises(ApiError, match="no open node has capacity"):
        await live.client(lambda client: client.probe())
    for each in (node("a"), node("b", gpus=3)):
        live.cluster.add_node(each)
    job = await live.client(lambda client: client.probe())
    spec = (await live.store.job(job.id)).parsed_spec()
    assert job.name == "probe-cuda" and [layout.world_size for layout in spec.ladder] == [3]
    job = await live.client(lambda client: client.probe(device="cpu", ranks=5))
    assert (await live.store.job(job.id)).parsed_spec().layout.dp.target == 5


async def test_the_newest_result_is_shown_per_node_and_level(live: Any) -> None:
    for each in (node("a"), node("b")):
        live.cluster.add_node(each)
    assert await live.client(lambda client: client.probes()) == []
    await probed(live, probe_result(2, 4))
    newest = await probed(live, probe_result(2, 4, links={(0, 1): (0.7e9, 3e-4)}, wrong=[5]))
    (shown,) = await live.client(lambda client: client.probes())
    assert (shown.job_id, shown.kind, shown.ranks) == (newest, "cpu", 8)
    assert [(each.name, each.ranks, each.domains[2]) for each in shown.nodes] == [
        ("node-a", 4, "rack-a"), ("node-b", 4, "rack-b"),
    ]  # fmt: skip
    assert [(each.level, each.bytes_s) for each in shown.levels] == [("device", 3e9), ("rack", 0.7e9)]
    first, reported = describe_probe(shown)
    assert first.startswith("8 ranks of x86_64 (cpu), measured 1970-01-01 ") and newest in first
    assert reported == "! node node-b: all_reduce of 1048576 bytes gave a wrong result there"
    text = (await Metrics(live.store, rule_of(live.services.settings)).render()).decode()
    assert 'regroup_probe_bandwidth_bytes_per_second{kind="cpu",level="rack"} 7e+08' in text
    assert 'regroup_probe_matmul_flops{dtype="fp32",kind="cpu",node="node-a"} 5e+10' in text
    assert 'regroup_probe_anomalies{kind="cpu",what="node"} 1.0' in text


async def test_plans_and_topology_use_measured_values(live: Any) -> None:
    for each in (node("a"), node("b")):
        live.cluster.add_node(each)
    question = {"model": "gpt2", "device": "cpu", "gpus": 4, "global_batch": 8, "sequence": 64, "precision": "fp32"}
    assert (await live.client(lambda client: client.plan(**question))).measured_values == []
    job_id = await probed(live, probe_result(2, 4, links={(0, 1): (0.7e9, 3e-4)}))
    figures = (await live.client(lambda client: client.plan(**question))).measured_values
    network = next(each for each in figures if each.name == "network bytes/s")
    assert (network.value, network.table, network.job_id) == (0.7e9, 1.25e9, job_id)
    levels = {level.level: level for level in (await live.client(lambda client: client.topology())).levels}
    assert levels["rack"].link.bytes_per_s == 0.7e9 and levels["rack"].measured_s == network.time_s
    assert levels["block"].measured_s is None and levels["block"].link.bytes_per_s < 0.7e9


async def test_the_tree_shows_islands_in_nodes_and_nodes_in_a_fabric(live: Any) -> None:
    for each in (node("a"), node("b"), node("c")):
        live.cluster.add_node(each)
    await probed(live, probe_result(2, fabric="f.1"))
    found = await live.client(lambda client: client.topology())
    assert list(tree_lines(found.domains)) == [
        ("rack rack-a", "4/4 CPUs free"), ("  gpu_domain f.1", "4/4 CPUs free"), ("    node node-a", "4/4 CPUs free"),
        ("      cores", "NUMA 0, cores 0-1"),
        ("rack rack-b", "4/4 CPUs free"), ("  gpu_domain f.1", "4/4 CPUs free"), ("    node node-b", "4/4 CPUs free"),
        ("      cores", "NUMA 0, cores 0-1"),
        ("rack rack-c", "4/4 CPUs free"), ("  gpu_domain (unknown)", "4/4 CPUs free"),
        ("    node node-c", "4/4 CPUs free"),
    ]  # fmt: skip
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8" and ranges([]) == ""


async def test_an_unreadable_result_is_ignored(live: Any) -> None:
    for each in (node("a"), node("b")):
        live.cluster.add_node(each)
    good = await probed(live, probe_result(2))
    await probed(live, {**probe_result(2), "pairs": "none"})
    (shown,) = await live.client(lambda client: client.probes())
    assert shown.job_id == good


async def test_a_job_of_another_user_with_the_label_is_ignored(live: Any) -> None:
    await live.submit(labels={"regroup.io/probe": "cpu"})
    assert await live.client(lambda client: client.probes()) == []
