"""The start configuration of a supervisor."""

from dataclasses import replace

from regroup.service.cluster_state.allocations import allocate
from regroup.service.cluster_state.start_config import start_config
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission, demand_of
from regroup.service.settings import Settings
from tests.support.inputs.job_rows import JOB

_SPEC = {
    "name": "gpt", "workload": {"kind": "builtin", "data": {"train": ["/data/*.txt"]}}, "layout": {"dp": 2},
    "training": {"global_batch": 4, "micro_batch": 1, "sequence": 16, "steps": 10},
}  # fmt: skip


def test_it_has_the_nodes_of_the_reservations_and_the_checkpoint_to_resume() -> None:
    job = replace(JOB, spec=_SPEC, storage_uri="file:///s/jobs/job_1", resume_uri="file:///s/old/step-70.gen-2")
    nodes, layout = [Node("a" * 56, "one", "10.0.0.1"), Node("b" * 56, "two", "10.0.0.2")], Layout(dp_shard=2)
    slots = tuple(RankSlot(node, 1) for node in nodes)
    rows = allocate(job, Admission(job.id, layout, demand_of(job.parsed_spec(), layout), Placement(slots)))
    found = start_config(Settings(port_range="4000-4100"), job, rows, {})
    assert [(node.node_id, node.name, node.ranks) for node in found.nodes] == [
        ("a" * 56, "one", 1), ("b" * 56, "two", 1),
    ]  # fmt: skip
    assert (found.job_id, found.layout, found.datasets_uri) == (job.id, layout, "file:///s/datasets")
    assert found.resume is not None and (found.resume.uri, found.resume.step) == (job.resume_uri, 70)
    assert (found.port_first, found.port_last) == (4000, 4100)
