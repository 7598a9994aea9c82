"""Other nodes in the place of some that a live job has: rows first, then reservations; nothing is held if it cannot be."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.cluster_state.allocations import (
    Member,
    members_of,
    node_of,
    reservation_of,
    seats_of,
    take_all,
    without_allocated,
)
from regroup.service.controller.spare_promotion import enlist
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Placement, Unplaceable, place_replacements
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.cluster import Cluster, ReservationRefusedError
from regroup.service.store.records import Allocation, JobRow, Lease
from regroup.service.store.store import Store


@dataclass(frozen=True)
class Substitutes:
    """What was taken, and who the job consists of with it."""

    nodes: Sequence[Mapping[str, Any]]
    """All nodes that the job is to have, in the order of its ranks, as its supervisor is told of them."""
    taken: Sequence[Allocation]
    """Rows that were added."""

    @property
    def names(self) -> list[str]:
        """Of the nodes that came."""
        return [member.name for member in members_of(row for row in self.taken if row.kind == "reservation")]


def plan_of(rows: Sequence[Allocation], job_id: str) -> dict[str, Any]:
    """What a job's supervisor is to know, from the row of that; empty if the job holds nothing."""
    return next((row.data for row in rows if row.job_id == job_id and row.kind == "supervisor"), {})


def members(rows: Sequence[Allocation], job_id: str) -> list[Member]:
    """What a job is to have, in the order of its ranks. It may hold more that it leaves."""
    reservations = {row.name: row for row in rows if row.job_id == job_id and row.is_seat}
    nodes = plan_of(rows, job_id).get("nodes")
    if nodes is None:
        return members_of(reservations.values())
    return [
        Member(
            tuple(reservations[name] for name in node.get("reservations") or (node["reservation"],)),
            tuple(node.get("numbers") or ()),
        )
        for node in nodes
    ]


async def take_heirs(
    lease: Lease,
    store: Store,
    cluster: Cluster,
    job: JobRow,
    leaving: Sequence[Member],
    nodes: Sequence[Node],
    now: float,
) -> Substitutes | str:
    """Take a node for each of `leaving`, which are the job's, out of `nodes`; or say why it cannot be.

    Raises:
        UnavailableError: the database does not answer.
    """
    rows = await store.live_allocations()
    demand = demand_of(job.parsed_spec(), Layout(**plan_of(rows, job.id)["layout"]))
    held = {row.node_id for row in rows if row.job_id == job.id and row.kind == "reservation"}
    free = [node for node in without_allocated(nodes, rows) if node.id not in held]
    gone = {member.node_id for member in leaving}
    ready = enlist([row for row in rows if row.job_id == job.id and row.is_spare], leaving, nodes)
    others = [member for member in leaving if member.node_id not in ready.heirs]
    stay = [member.domain for member in members(rows, job.id) if member.node_id not in gone and member.domain]
    found = place_replacements(demand, [member.ranks for member in others], free, stay) if others else Placement(())
    if isinstance(found, Unplaceable):
        return found.message
    numbers = [tuple(member.numbers) for member in others]
    chosen = [replace(seat, rank_numbers=which) for seat, which in zip(found.slots, numbers, strict=True)]
    fresh = seats_of(job, demand, Placement(tuple(chosen)))
    come = members_of(row for row in fresh if row.kind == "reservation")
    heirs = {**ready.heirs, **dict(zip((member.node_id for member in others), come, strict=True))}
    seats = [heirs.get(member.node_id, member) for member in members(rows, job.id)]
    taken, reservations = [*ready.turned, *fresh], [row for member in seats for row in member.reservations]
    devices = await take(lease, store, cluster, job, taken, reservations, now, release=ready.released)
    if isinstance(devices, str):
        gone = {row.node_id for row in ready.turned}
        agents = [row for row in rows if row.job_id == job.id and row.kind == "agent" and row.node_id in gone]
        await give_back(lease, store, cluster, job, agents, now)
        return devices
    for name in ready.released - {row.name for row in ready.turned}:
        with contextlib.suppress(UnavailableError):  # what no row names is reaped
            await cluster.release_reservation(name)
    return Substitutes([node_of(member, devices) for member in seats], taken)


async def take(
    lease: Lease,
    store: Store,
    cluster: Cluster,
    job: JobRow,
    added: Sequence[Allocation],
    reservations: Sequence[Allocation],
    now: float,
    *,
    release: Collection[str] = (),
) -> Mapping[str, Sequence[int]] | str:
    """Name what is `added`, then take it; returns the devices of all `reservations`, those that are held told again, or why
    it cannot be: then nothing was added. `release`: names of rows that are given up, whatever comes of it.

    Raises:
        UnavailableError: the database does not answer.
    """
    await store.reallocate(lease, job.id, allocate=added, release=list(release), now=now)
    try:
        return await take_all(cluster, [reservation_of(row) for row in reservations])
    except (ReservationRefusedError, UnavailableError) as error:
        await give_back(lease, store, cluster, job, added, now)
        return str(error)


async def give_back(
    lease: Lease, store: Store, cluster: Cluster, job: JobRow, rows: Sequence[Allocation], now: float, **change: Any
) -> None:
    """Hold these rows' reservations no longer, and end their agents; `change`: what `Store.reallocate` writes beside that."""
    await store.reallocate(lease, job.id, release=[row.name for row in rows], now=now, **change)
    for row in rows:
        with contextlib.suppress(UnavailableError):  # what no row names is reaped
            await (cluster.release_reservation if row.kind == "reservation" else cluster.kill_actor)(row.name)
