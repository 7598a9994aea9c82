"""The queue with several clusters: a job that waits for one cluster does not hold up those for another."""

from dataclasses import replace

from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.placement.place import Shortage
from regroup.service.policy.scheduling.autoscaler_request import build_node_request
from regroup.service.policy.scheduling.decide import Admission, Wait, decide
from regroup.service.policy.scheduling.entries import RunningJob, WaitingJob
from tests.support.inputs.queue_inputs import demand, node, sizes

WEST = NodeKind(cluster="west")


def there(name: str, free: int) -> Node:
    return replace(node(name, 8, free), cluster="west")


def job(name: str, ranks: int, cluster: str = "", queued_s: float = 0.0) -> WaitingJob:
    placed = tuple(replace(size, demand=replace(size.demand, kind=NodeKind(cluster=cluster))) for size in sizes(ranks))
    return WaitingJob(name, name, placed, queued_s=queued_s)


def test_a_job_that_waits_for_one_cluster_blocks_no_other_cluster() -> None:
    queue = [job("first", 8, "west"), job("second", 8, queued_s=1.0), job("third", 4, "west", queued_s=2.0)]
    busy = RunningJob("busy", "busy", demand(4, kind=WEST), (("west:b", 4),), (), allocated_at_s=-1000.0)
    decisions = {each.job_id: each for each in decide(queue, [node("a", 8), there("west:b", 4)], [busy], now_s=9.0)}
    second = decisions["second"]
    assert isinstance(second, Admission) and {slot.node.cluster for slot in second.placement.slots} == {""}
    for name in ("first", "third"):
        waits = decisions[name]
        assert isinstance(waits, Wait)
    third = decisions["third"]
    assert isinstance(third, Wait) and third.why.reason is Shortage.PRIORITY


def test_an_autoscaler_request_names_the_cluster_of_each_bundle() -> None:
    waits = [(job("here", 4), Shortage.RESOURCES), (job("there", 4, "west"), Shortage.RESOURCES)]
    request = build_node_request(waits, [], now_s=100.0, after_s=0.0)
    assert {bundle.kind.cluster for bundle in request.bundles} == {"", "west"}
    assert all(bundle.labels() == {} for bundle in request.bundles)
