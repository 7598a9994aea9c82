"""The allocations of jobs: rows that are written before the Ray objects, and the reservations that they describe."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from regroup.service.domain.topology import Node, domains_of
from regroup.service.policy.placement.place import Demand, Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission
from regroup.service.ports.assignment import Drain, JobAssignment, NodeAssignment, Resize
from regroup.service.ports.cluster import Cluster, Reservation, agent_name, reservation_name, supervisor_name
from regroup.service.store.records import Allocation, AllocationKind, JobRow


def allocate(job: JobRow, turn: Admission) -> tuple[Allocation, ...]:
    """Names of all that the job may own from now on, with what a successor needs to make it."""
    assignment = JobAssignment(turn.layout, attempt=job.version - 1, choice=turn.placement.choice)
    supervisor = Allocation(job.id, AllocationKind.SUPERVISOR, supervisor_name(job.id), data=assignment.to_json())
    return (supervisor, *seats_of(job, turn.demand, turn.placement))


def seats_of(job: JobRow, demand: Demand, placement: Placement) -> tuple[Allocation, ...]:
    """Reservations and an agent for each seat."""
    rows: list[Allocation] = []
    for seat in placement.slots:
        rows += reservations_for(job, demand, seat)
        rows.append(Allocation(job.id, AllocationKind.AGENT, agent_name(job.id, seat.node.id), seat.node.id))
    return tuple(rows)


def spare_for(job: JobRow, demand: Demand, seat: RankSlot) -> list[Allocation]:
    """Return the rows of a spare node: one reservation per group of ranks, so that a part can be used."""
    rows = reservations_for(job, demand, seat, apart=True)
    return [replace(row, data={**row.data, "spare": True}) for row in rows]


def reservations_for(job: JobRow, demand: Demand, seat: RankSlot, *, apart: bool = False) -> list[Allocation]:
    """Return the rows for the devices of a slot: one reservation.

    A job that may shrink (or `apart`) gets one per group of ranks, because Ray releases only whole reservations.
    """
    apart = apart or len(job.parsed_spec().ladder) > 1
    node, groups = seat.node, seat.ranks // demand.segment if apart else 1
    ranks = seat.ranks // groups
    shared = {
        "ranks": ranks, "device_kind": demand.device, "cpus": ranks * demand.cpus,
        "memory_bytes": ranks * demand.memory_bytes, "name": node.name, "address": node.address,
        "machine": node.machine, "domain": list(domains_of(node)),
    }  # fmt: skip
    name = reservation_name(job.id, node.id, job.version)
    names = [name, *(f"{name}-{number}" for number in range(2, groups + 1))]
    numbers = [list(seat.rank_numbers[at * ranks : (at + 1) * ranks]) for at in range(groups)]
    return [
        Allocation(job.id, AllocationKind.RESERVATION, each, node.id, {**shared, "numbers": which})
        for each, which in zip(names, numbers, strict=True)
    ]


def reservation_of(row: Allocation) -> Reservation:
    """The reservation that an allocation row describes."""
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
    """What a job has on one node: one reservation, or several."""

    reservations: tuple[Allocation, ...]
    seated: tuple[int, ...] | None = None
    """Which ranks, where that was chosen after its reservations were taken."""

    @property
    def node_id(self) -> str:
        """Its node."""
        return self.reservations[0].node_id

    @property
    def name(self) -> str:
        """What people call its node."""
        return self.reservations[0].data["name"]

    @property
    def ranks(self) -> int:
        """Ranks that fit in what is held."""
        return sum(row.data["ranks"] for row in self.reservations)

    @property
    def domain(self) -> list[str]:
        """The domains it is in, the largest first; none where nobody knows."""
        return self.reservations[0].data.get("domain", [])

    @property
    def numbers(self) -> list[int]:
        """Which ranks were placed here, in the order of its devices; none where nobody chose."""
        if self.seated is not None:
            return list(self.seated)
        return [number for row in self.reservations for number in row.data.get("numbers", ())]


@dataclass(frozen=True)
class JobAllocations:
    """The live allocations of one job."""

    rows: Sequence[Allocation]

    @classmethod
    def select(cls, rows: Iterable[Allocation], job_id: str) -> "JobAllocations":
        """Return those of `rows` that belong to the job."""
        return cls([row for row in rows if row.job_id == job_id])

    def __bool__(self) -> bool:
        return bool(self.rows)

    @cached_property
    def assignment(self) -> JobAssignment:
        """What the job is assigned, from the row of its supervisor."""
        return JobAssignment.from_json(next(row.data for row in self.rows if row.kind is AllocationKind.SUPERVISOR))

    @property
    def change(self) -> Drain | Resize | None:
        """The change in progress; None also for a job that holds nothing."""
        return self.assignment.change if self.rows else None

    @property
    def seats(self) -> list[Allocation]:
        """Reservations for ranks."""
        return [row for row in self.rows if row.is_seat]

    @property
    def spares(self) -> list[Allocation]:
        """Reservations of spare nodes."""
        return [row for row in self.rows if row.is_spare]

    @property
    def members(self) -> list[Member]:
        """The desired nodes of the job in the order of its ranks. The job may hold others that it is leaving."""
        nodes = self.assignment.nodes if self.rows else ()
        if not nodes:
            return members_of(self.seats)
        by_name = {row.name: row for row in self.seats}
        return [Member(tuple(by_name[name] for name in node.reservations), node.numbers) for node in nodes]


def members_of(reservations: Iterable[Allocation]) -> list[Member]:
    """By node, in the order of the first reservation of each."""
    by_node: dict[str, list[Allocation]] = {}
    for row in reservations:
        by_node.setdefault(row.node_id, []).append(row)
    return [Member(tuple(rows)) for rows in by_node.values()]


def node_assignment(member: Member, devices: Mapping[str, Sequence[int]], ranks: int | None = None) -> NodeAssignment:
    """Return the assignment of a node.

    Args:
        devices: Reservation name → indexes of its devices.
        ranks: Number of ranks; as many as fit unless given.
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
    job: JobRow, demand: Demand, seats: Sequence[RankSlot], mine: Sequence[Member]
) -> tuple[list[Allocation], list[tuple[Member, int]]]:
    """Of a job that has `mine` and is to have these seats: rows to add, and what it then has on each node with the
    number of its ranks there."""
    had = {member.node_id: member for member in mine}
    added, found = list[Allocation](), list[tuple[Member, int]]()
    for seat in seats:
        kept, missing = list[Allocation](), seat.ranks
        for row in had[seat.node.id].reservations if seat.node.id in had else ():
            if missing > 0:
                kept.append(row)
                missing -= row.data["ranks"]
        more = list[Allocation]()
        if missing > 0 and kept:
            more = reservations_for(job, demand, replace(seat, ranks=missing, rank_numbers=()))
        elif missing > 0:
            more = list(seats_of(job, demand, Placement((seat,))))
        added += more
        (member,) = members_of([*kept, *(row for row in more if row.kind is AllocationKind.RESERVATION)])
        found.append((replace(member, seated=seat.rank_numbers), seat.ranks))
    return added, found


def without_allocated(nodes: Sequence[Node], rows: Sequence[Allocation]) -> list[Node]:
    """Nodes with what is free by the cluster and by our book: each lags behind the other at times."""
    cpus, gpus, memory = Counter[str](), Counter[str](), Counter[str]()
    for reservation in (reservation_of(row) for row in rows if row.kind is AllocationKind.RESERVATION):
        cpus[reservation.node_id] += reservation.cpus
        gpus[reservation.node_id] += reservation.devices if reservation.device_kind == "cuda" else 0
        memory[reservation.node_id] += reservation.memory_bytes
    return [
        replace(
            node,
            free_cpus=min(node.free_cpus, node.cpus - cpus[node.id]),
            free_gpus=min(node.free_gpus, node.gpus - gpus[node.id]),
            free_memory_bytes=min(node.free_memory_bytes, node.memory_bytes - memory[node.id]),
        )
        for node in nodes
    ]
