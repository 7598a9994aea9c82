"""What of the cluster a job may own: rows that are written before anything is made, and the reservations they describe."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.domain.topology import Node, domains_of
from regroup.service.policy.placement.place import Demand, Placement, RankSlot
from regroup.service.policy.scheduling.decide import Admission
from regroup.service.ports.cluster import Cluster, Reservation, agent_name, reservation_name, supervisor_name
from regroup.service.store.records import Allocation, JobRow


def allocate(job: JobRow, turn: Admission) -> tuple[Allocation, ...]:
    """Names of all that the job may own from now on, with what a successor needs to make it."""
    choice = turn.placement.choice
    plan = {
        "layout": turn.layout.to_json(),
        "attempt": job.version - 1,
        **({"choice": choice.to_json()} if choice else {}),
    }
    supervisor = Allocation(job.id, "supervisor", supervisor_name(job.id), data=plan)
    return (supervisor, *seats_of(job, turn.demand, turn.placement))


def seats_of(job: JobRow, demand: Demand, placement: Placement) -> tuple[Allocation, ...]:
    """Reservations and an agent for each seat."""
    rows: list[Allocation] = []
    for seat in placement.slots:
        rows += reservations_for(job, demand, seat)
        rows.append(Allocation(job.id, "agent", agent_name(job.id, seat.node.id), seat.node.id))
    return tuple(rows)


def spare_for(job: JobRow, demand: Demand, seat: RankSlot) -> list[Allocation]:
    """What holds a node ready: reservations for each group of ranks, because nobody knows how many of them will be needed."""
    rows = reservations_for(job, demand, seat, apart=True)
    return [replace(row, data={**row.data, "spare": True}) for row in rows]


def reservations_for(job: JobRow, demand: Demand, seat: RankSlot, *, apart: bool = False) -> list[Allocation]:
    """What holds a seat's devices: one reservation, but of a job that may shrink (or `apart`) one for each group of ranks,
    because what Ray has given is given back whole."""
    apart = apart or len(job.parsed_spec().ladder) > 1
    node, groups = seat.node, seat.ranks // demand.segment if apart else 1
    ranks = seat.ranks // groups
    holds = {
        "ranks": ranks, "device_kind": demand.device, "cpus": ranks * demand.cpus,
        "memory_bytes": ranks * demand.memory_bytes, "name": node.name, "address": node.address,
        "machine": node.machine, "domain": list(domains_of(node)),
    }  # fmt: skip
    name = reservation_name(job.id, node.id, job.version)
    names = [name, *(f"{name}-{number}" for number in range(2, groups + 1))]
    numbers = [list(seat.rank_numbers[at * ranks : (at + 1) * ranks]) for at in range(groups)]
    return [
        Allocation(job.id, "reservation", each, node.id, {**holds, "numbers": which})
        for each, which in zip(names, numbers, strict=True)
    ]


def reservation_of(row: Allocation) -> Reservation:
    """The reservation that an allocation row describes."""
    data = row.data
    return Reservation(
        row.name, row.job_id, row.node_id, data["ranks"], data["device_kind"], data["cpus"], data["memory_bytes"]
    )


async def take_all(cluster: Cluster, reservations: Sequence[Reservation]) -> Mapping[str, Sequence[int]]:
    """Device indexes by reservation name. Lets every attempt end before it raises: what is in flight could be taken late."""
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


def members_of(reservations: Iterable[Allocation]) -> list[Member]:
    """By node, in the order of the first reservation of each."""
    by_node: dict[str, list[Allocation]] = {}
    for row in reservations:
        by_node.setdefault(row.node_id, []).append(row)
    return [Member(tuple(rows)) for rows in by_node.values()]


def node_of(member: Member, devices: Mapping[str, Sequence[int]], ranks: int | None = None) -> dict[str, Any]:
    """A node as the job's supervisor is told of it. `devices`: by reservation; `ranks`: so many of those that fit."""
    data, count = member.reservations[0].data, member.ranks if ranks is None else ranks
    held = [device for row in member.reservations for device in _told(row, devices)]
    return {
        "node_id": member.node_id, "name": data["name"], "address": data["address"], "ranks": count,
        "reservations": {row.name: row.data["ranks"] for row in member.reservations},
        "devices": held[:count] if len(held) >= count else [], "domain": data.get("domain", []),
        "numbers": member.numbers[:count],
    }  # fmt: skip


def reseated(
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
        (member,) = members_of([*kept, *(row for row in more if row.kind == "reservation")])
        found.append((replace(member, seated=seat.rank_numbers), seat.ranks))
    return added, found


def _told(row: Allocation, devices: Mapping[str, Sequence[int]]) -> Sequence[int]:
    return devices.get(row.name, ())


def without_allocated(nodes: Sequence[Node], rows: Sequence[Allocation]) -> list[Node]:
    """Nodes with what is free by the cluster and by our book: each lags behind the other at times."""
    cpus, gpus, memory = Counter[str](), Counter[str](), Counter[str]()
    for reservation in (reservation_of(row) for row in rows if row.kind == "reservation"):
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
