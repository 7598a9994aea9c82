"""Jobs that have devices of the live server's cluster, with the rows that its controller would write."""

from collections.abc import Mapping
from hashlib import sha1
from typing import Any

from regroup.service.cluster_state.allocations import allocate
from regroup.service.domain.states import JobState, Reason, check_transition
from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node
from regroup.service.policy.placement.place import Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission, demand_of
from tests.support.servers.live_server import formed, state, step


def add_rack(live: Any, rack: str, count: int, cpus: int = 4) -> list[str]:
    """Add nodes of a rack to the cluster, and return their names."""
    names = [f"{rack}-{number}" for number in range(count)]
    for name in names:
        labels = {DEFAULT_LABELS[Level.RACK]: rack}
        node_id, free = sha1(name.encode()).hexdigest(), {"free_cpus": cpus, "free_memory_bytes": 2**36}
        node = Node(node_id, name, "10.0.0.1", labels=labels, cpus=cpus, memory_bytes=2**36, **free)
        live.cluster.add_node(node)
    return names


async def place_job(live: Any, job_id: str, ranks: Mapping[str, int]) -> None:
    """Place a queued job: name of a node → number of ranks there. It runs at step 1."""
    job = await live.store.job(job_id)
    spec, nodes = job.parsed_spec(), {node.name: node for node in await live.cluster.nodes()}
    layout = next(each for each in spec.ladder if each.world_size == sum(ranks.values()))
    slots = tuple(RankSlot(nodes[name], count) for name, count in ranks.items())
    rows = allocate(job, Admission(job_id, layout, demand_of(spec, layout), Placement(slots)))
    placed = check_transition(job_id, JobState.QUEUED, JobState.PLACING, Reason.PLACED)
    await live.store.apply(live.lease, placed, now=500.0, allocate=rows)
    starting = check_transition(job_id, JobState.PLACING, JobState.STARTING, Reason.RESERVED)
    await live.store.apply(live.lease, starting, now=500.0)
    await live.report(job_id, formed(1, 0), step(1, 1), state("RUNNING", "first_step"))
