"""The replacement of some nodes of a live job: rows first, then reservations, and nothing is held if it fails."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.cluster_state.allocations import (
    JobAllocations,
    Member,
    create_reservations,
    members_of,
    node_assignment,
    reservation_of,
    slot_allocations,
)
from regroup.service.cluster_state.substitutes import choose_substitutes
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.domain.errors import UnavailableError
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Placement, Unplaceable
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.assignment import NodeAssignment
from regroup.service.ports.cluster import ReservationRefusedError
from regroup.service.store.rows.records import Allocation, AllocationKind, JobRow


@dataclass(frozen=True)
class Substitution:
    """The nodes of a job after some were replaced."""

    nodes: tuple[NodeAssignment, ...]
    """All nodes of the job, in the order of its ranks."""
    added: Sequence[Allocation]
    """Rows that were added."""

    @property
    def added_nodes(self) -> dict[str, str]:
        """Node id → name, of the nodes that were added."""
        rows = (row for row in self.added if row.kind is AllocationKind.RESERVATION)
        return {member.node_id: member.name for member in members_of(rows)}


async def substitute_nodes(
    leader: LeaderContext, job: JobRow, leaving: Sequence[Member], nodes: Sequence[Node], now: float
) -> Substitution | str:
    """Allocate a node of `nodes` for each of `leaving`, the job's spares first.

    Returns:
        The new nodes of the job, or why there are none.

    Raises:
        UnavailableError: The database does not answer.
    """
    rows = await leader.store.live.all_allocations()
    own = JobAllocations.select(rows, job.id)
    demand = demand_of(job.parsed_spec(), own.assignment.layout)
    found = choose_substitutes(rows, own, demand, leaving, nodes)
    if isinstance(found, Unplaceable):
        return found.message
    spares, others = found.spares, found.placed
    numbers = [tuple(member.numbers) for member in others]
    chosen = [replace(slot, rank_numbers=which) for slot, which in zip(found.placement.slots, numbers, strict=True)]
    fresh = slot_allocations(job, demand, Placement(tuple(chosen)))
    placed = members_of(row for row in fresh if row.kind is AllocationKind.RESERVATION)
    placed_for = dict(zip((member.node_id for member in others), placed, strict=True))
    substitutes = {**spares.substitutes, **placed_for}
    members = [substitutes.get(member.node_id, member) for member in own.members]
    added, reservations = [*spares.promoted, *fresh], [row for member in members for row in member.reservations]
    devices = await allocate_rows(leader, job, added, reservations, now, release=spares.released)
    if isinstance(devices, str):
        given_up = {row.node_id for row in spares.promoted}
        agents = [row for row in own.rows if row.kind is AllocationKind.AGENT and row.node_id in given_up]
        await release_rows(leader, job, agents, now)
        return devices
    for name in spares.released - {row.name for row in spares.promoted}:
        with contextlib.suppress(UnavailableError):  # reservations without a row are reaped
            await leader.cluster.release_reservation(name)
    return Substitution(tuple(node_assignment(member, devices) for member in members), added)


async def allocate_rows(
    leader: LeaderContext,
    job: JobRow,
    added: Sequence[Allocation],
    reservations: Sequence[Allocation],
    now: float,
    *,
    release: Collection[str] = (),
) -> Mapping[str, Sequence[int]] | str:
    """Write the rows `added`, then create the reservations.

    Args:
        reservations: All reservations of the job. Those that exist already only return their devices.
        release: Names of rows to release, whether or not the reservations are created.

    Returns:
        Reservation name → indexes of its devices; or why it failed, and then nothing was added.

    Raises:
        UnavailableError: The database does not answer.
    """
    await leader.store.reallocate(leader.lease, job.id, allocate=added, release=list(release), now=now)
    try:
        return await create_reservations(leader.cluster, [reservation_of(row) for row in reservations])
    except (ReservationRefusedError, UnavailableError) as error:
        await release_rows(leader, job, added, now)
        return str(error)


async def release_rows(
    leader: LeaderContext, job: JobRow, rows: Sequence[Allocation], now: float, **change: Any
) -> None:
    """Release the reservations of these rows and kill their agents.

    Args:
        change: Further arguments of `Store.reallocate`.
    """
    await leader.store.reallocate(leader.lease, job.id, release=[row.name for row in rows], now=now, **change)
    for row in rows:
        is_reservation = row.kind is AllocationKind.RESERVATION
        with contextlib.suppress(UnavailableError):  # the leader reaps actors and reservations without a row
            await (leader.cluster.release_reservation if is_reservation else leader.cluster.kill_actor)(row.name)
