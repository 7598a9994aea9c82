"""The allocations of jobs: rows written before the Ray objects are created, and the reservations that they describe."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from regroup.service.domain.topology import Node, domains_of
from regroup.service.policy.placement.place import Demand, Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission
from regroup.service.policy.usage.device_spans import ACCELERATOR
from regroup.service.ports.assignment import Drain, JobAssignment, NodeAssignment, Resize
from regroup.service.ports.cluster import Cluster, Reservation, agent_name, reservation_name, supervisor_name
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow


def allocate(job: JobRow, turn: Admission) -> tuple[Allocation, ...]:
    """Return the rows of all Ray objects that the job may own, with the data that a restarted controller needs."""
    assignment = JobAssignment(turn.layout, attempt=job.version - 1, choice=turn.placement.choice)
    supervisor = Allocation(job.id, AllocationKind.SUPERVISOR, supervisor_name(job.id), data=assignment.to_json())
    return (supervisor, *slot_allocations(job, turn.demand, turn.placement))


def slot_allocations(job: JobRow, demand: Demand, placement: Placement) -> tuple[Allocation, ...]:
    """Return the rows of the reservations and of an agent for each slot."""
    rows: list[Allocation] = []
    for slot in placement.slots:
        rows += reservations_for(job, demand, slot)
        rows.append(Allocation(job.id, AllocationKind.AGENT, agent_name(job.id, slot.node.id), slot.node.id))
    return tuple(rows)


def spare_for(job: JobRow, demand: Demand, slot: RankSlot) -> list[Allocation]:
    """Return the rows of a spare node: one reservation per group of ranks, so that a part can be used."""
    rows = reservations_for(job, demand, slot, apart=True)
    return [replace(row, data={**row.data, "spare": True}) for row in rows]


def reservations_for(job: JobRow, demand: Demand, slot: RankSlot, *, apart: bool = False) -> list[Allocation]:
    """Return the rows for the devices of a slot: one reservation.

    A job that may shrink (or `apart`) gets one per group of ranks, because Ray releases only whole reservations. Ranks
    that complete a group with those of another reservation get one of their own.
    """
    apart = (apart or len(job.parsed_spec().ladder) > 1) and slot.ranks % demand.segment == 0
    node, groups = slot.node, slot.ranks // demand.segment if apart else 1
    ranks = slot.ranks // groups
    shared = {
        "ranks": ranks, "device_kind": demand.device, "cpus": ranks * demand.cpus,
        "memory_bytes": ranks * demand.memory_bytes, "name": node.name, "address": node.address,
        "machine": node.machine, "domain": list(domains_of(node)), ACCELERATOR: node.kind.accelerator,
    }  # fmt: skip
    name = reservation_name(job.id, node.id, job.version)
    names = [name, *(f"{name}-{number}" for number in range(2, groups + 1))]
    numbers = [list(slot.rank_numbers[at * ranks : (at + 1) * ranks]) for at in range(groups)]
    return [
        Allocation(job.id, AllocationKind.RESERVATION, each, node.id, {**shared, "numbers": which})
        for each, which in zip(names, numbers, strict=True)
    ]


def reservation_of(row: Allocation) -> Reservation:
    """Return the reservation that an allocation row describes."""
    data = row.data
    return Reservation(
        row.name, row.job_id, row.node_id, data["ranks"], data["device_kind"], data["cpus"], data["memory_bytes"]
    )


async def create_reservations(cluster: Cluster, reservations: Sequence[Reservation]) -> Mapping[str, Sequence[int]]:
    """Create the reservations; return name → indexes of its devices.

    All attempts end before an error is raised: a request that is still in flight could succeed later.
    """
    taken = await asyncio.gather(
        *(cluster.create_reservation(reservation) for reservation in reservations), return_exceptions=True
    )
    devices: dict[str, Sequence[int]] = {}
    for reservation, outcome in zip(reservations, taken, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        devices[reservation.name] = outcome
    return devices


@dataclass(frozen=True)
class Member:
    """The reservations of a job on one node."""

    reservations: tuple[Allocation, ...]
    rank_numbers: tuple[int, ...] | None = None
    """Numbers of its ranks, if they were chosen after the reservations were created."""

    @property
    def node_id(self) -> str:
        """Id of its node."""
        return self.reservations[0].node_id

    @property
    def name(self) -> str:
        """Name of its node."""
        return self.reservations[0].data["name"]

    @property
    def ranks(self) -> int:
        """Number of ranks that fit in the reservations."""
        return sum(row.data["ranks"] for row in self.reservations)

    @property
    def domain(self) -> list[str]:
        """Domains of its node, the largest first; empty if they are unknown."""
        return self.reservations[0].data.get("domain", [])

    @property
    def numbers(self) -> list[int]:
        """Numbers of its ranks, in the order of its devices; empty if placement chose none."""
        if self.rank_numbers is not None:
            return list(self.rank_numbers)
        return [number for row in self.reservations for number in row.data.get("numbers", ())]


@dataclass(frozen=True)
class JobAllocations:
    """The live allocations of one job."""

    rows: Sequence[Allocation]

    @classmethod
    def select(cls, rows: Iterable[Allocation], job_id: str) -> "JobAllocations":
        """Return the rows of the job."""
        return cls([row for row in rows if row.job_id == job_id])

    def __bool__(self) -> bool:
        return bool(self.rows)

    @cached_property
    def assignment(self) -> JobAssignment:
        """Assignment of the job, from the row of its supervisor."""
        return JobAssignment.from_json(next(row.data for row in self.rows if row.kind is AllocationKind.SUPERVISOR))

    @property
    def change(self) -> Drain | Resize | None:
        """Change in progress; None if there is none, or if the job has no allocations."""
        return self.assignment.change if self.rows else None

    @property
    def rank_reservations(self) -> list[Allocation]:
        """Reservations for ranks of the job."""
        return [row for row in self.rows if row.is_for_ranks]

    @property
    def spares(self) -> list[Allocation]:
        """Reservations of spare nodes."""
        return [row for row in self.rows if row.is_spare]

    @property
    def members(self) -> list[Member]:
        """Desired nodes of the job, in the order of its ranks. The job may also have nodes that it will leave."""
        nodes = self.assignment.nodes if self.rows else ()
        if not nodes:
            return members_of(self.rank_reservations)
        by_name = {row.name: row for row in self.rank_reservations}
        return [Member(tuple(by_name[name] for name in node.reservations), node.numbers) for node in nodes]


def members_of(reservations: Iterable[Allocation]) -> list[Member]:
    """Group reservations by node, in the order of each node's first reservation."""
    by_node: dict[str, list[Allocation]] = {}
    for row in reservations:
        by_node.setdefault(row.node_id, []).append(row)
    return [Member(tuple(rows)) for rows in by_node.values()]


def node_assignment(member: Member, devices: Mapping[str, Sequence[int]], ranks: int | None = None) -> NodeAssignment:
    """Return the assignment of a node.

    Args:
        devices: Reservation name → indexes of its devices.
        ranks: Number of ranks; None: as many as fit.
    """
    data, count = member.reservations[0].data, member.ranks if ranks is None else ranks
    indexes = [device for row in member.reservations for device in devices.get(row.name, ())]
    return NodeAssignment(
        node_id=member.node_id,
        name=data["name"],
        address=data["address"],
        ranks=count,
        devices=tuple(indexes[:count]) if len(indexes) >= count else (),
        reservations={row.name: row.data["ranks"] for row in member.reservations},
        domain=tuple(member.domain),
        numbers=tuple(member.numbers[:count]),
    )


def assign_slots(
    job: JobRow, demand: Demand, slots: Sequence[RankSlot], mine: Sequence[Member]
) -> tuple[list[Allocation], list[tuple[Member, int]]]:
    """Reuse a job's reservations for the slots that it should have.

    Args:
        slots: desired slots.
        mine: current reservations.

    Returns:
        The rows to add, and for each slot its reservations with the number of ranks.
    """
    had = {member.node_id: member for member in mine}
    added, found = list[Allocation](), list[tuple[Member, int]]()
    for slot in slots:
        kept, missing = list[Allocation](), slot.ranks
        for row in had[slot.node.id].reservations if slot.node.id in had else ():
            if missing > 0:
                kept.append(row)
                missing -= row.data["ranks"]
        more = list[Allocation]()
        if missing > 0 and kept:
            more = reservations_for(job, demand, replace(slot, ranks=missing, rank_numbers=()))
        elif missing > 0:
            more = list(slot_allocations(job, demand, Placement((slot,))))
        added += more
        (member,) = members_of([*kept, *(row for row in more if row.kind is AllocationKind.RESERVATION)])
        found.append((replace(member, rank_numbers=slot.rank_numbers), slot.ranks))
    return added, found


def without_allocated(nodes: Sequence[Node], rows: Sequence[Allocation]) -> list[Node]:
    """Return the nodes with the resources that are free in the cluster and in the allocations.

    Either source may lag behind the other, so the smaller amount counts. A node with a reservation that cannot be read
    is closed, because the free resources are unknown.
    """
    cpus, gpus, memory = Counter[str](), Counter[str](), Counter[str]()
    closed: dict[str, str] = {}
    for row in rows:
        if row.kind is not AllocationKind.RESERVATION:
            continue
        try:
            reservation = reservation_of(row)
        except (KeyError, TypeError):
            closed[row.node_id] = f"the record of reservation {row.name} is damaged"
            continue
        cpus[reservation.node_id] += reservation.cpus
        gpus[reservation.node_id] += reservation.devices if reservation.device_kind == "cuda" else 0
        memory[reservation.node_id] += reservation.memory_bytes
    return [
        replace(
            node,
            free_cpus=min(node.free_cpus, node.cpus - cpus[node.id]),
            free_gpus=min(node.free_gpus, node.gpus - gpus[node.id]),
            free_memory_bytes=min(node.free_memory_bytes, node.memory_bytes - memory[node.id]),
            closed_reason=node.closed_reason or closed.get(node.id, ""),
        )
        for node in nodes
    ]
