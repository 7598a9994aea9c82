"""What of the cluster a job may own: rows that are written before anything is made, and the grants they describe."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regroup.service.policy.placement import Demand, Placement
from regroup.service.policy.queueing import Turn
from regroup.service.policy.topology import Node, domain_of
from regroup.service.runtime.cluster import Cluster, Grant, agent_name, grant_name, supervisor_name
from regroup.service.store.records import Allotment, JobRow


def allot(job: JobRow, turn: Turn) -> tuple[Allotment, ...]:
    """Names of all that the job may own from now on, with what a successor needs to make it."""
    choice = turn.placement.choice
    plan = {
        "layout": turn.layout.to_json(),
        "attempt": job.version - 1,
        **({"choice": choice.to_json()} if choice else {}),
    }
    supervisor = Allotment(job.id, "supervisor", supervisor_name(job.id), data=plan)
    return (supervisor, *seats_of(job, turn.demand, turn.placement))


def seats_of(job: JobRow, demand: Demand, placement: Placement) -> tuple[Allotment, ...]:
    """A grant and an agent for each seat."""
    rows: list[Allotment] = []
    for seat in placement.seats:
        node = seat.node
        holds = {
            "ranks": seat.ranks, "device_kind": demand.device, "cpus": seat.ranks * demand.cpus,
            "memory_bytes": seat.ranks * demand.memory_bytes, "name": node.name, "address": node.address,
            "machine": node.machine, "domain": list(domain_of(node)), "numbers": list(seat.numbers),
        }  # fmt: skip
        rows.append(Allotment(job.id, "grant", grant_name(job.id, node.id, job.version), node.id, holds))
        rows.append(Allotment(job.id, "agent", agent_name(job.id, node.id), node.id))
    return tuple(rows)


def grant_of(row: Allotment) -> Grant:
    """The grant that an allotment row describes."""
    data = row.data
    return Grant(
        row.name, row.job_id, row.node_id, data["ranks"], data["device_kind"], data["cpus"], data["memory_bytes"]
    )


async def take_all(cluster: Cluster, grants: Sequence[Grant]) -> Mapping[str, Sequence[int]]:
    """Device indexes by grant name. Lets every attempt end before it raises: what is in flight could be taken late."""
    taken = await asyncio.gather(*(cluster.take_grant(grant) for grant in grants), return_exceptions=True)
    devices: dict[str, Sequence[int]] = {}
    for grant, outcome in zip(grants, taken, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        devices[grant.name] = outcome
    return devices


def node_of(row: Allotment, devices: Sequence[int]) -> dict[str, Any]:
    """A node as the job's supervisor is told of it, from the row of its grant."""
    return {
        "node_id": row.node_id, "name": row.data["name"], "address": row.data["address"], "ranks": row.data["ranks"],
        "grant": row.name, "devices": list(devices), "domain": row.data.get("domain", []),
        "numbers": row.data.get("numbers", []),
    }  # fmt: skip


def without_allotted(nodes: Sequence[Node], rows: Sequence[Allotment]) -> list[Node]:
    """Nodes with what is free by the cluster and by our book: each lags behind the other at times."""
    cpus, gpus, memory = Counter[str](), Counter[str](), Counter[str]()
    for grant in (grant_of(row) for row in rows if row.kind == "grant"):
        cpus[grant.node_id] += grant.cpus
        gpus[grant.node_id] += grant.devices if grant.device_kind == "cuda" else 0
        memory[grant.node_id] += grant.memory_bytes
    return [
        replace(
            node,
            free_cpus=min(node.free_cpus, node.cpus - cpus[node.id]),
            free_gpus=min(node.free_gpus, node.gpus - gpus[node.id]),
            free_memory_bytes=min(node.free_memory_bytes, node.memory_bytes - memory[node.id]),
        )
        for node in nodes
    ]
