"""The choice of other nodes for nodes that a job must leave: its spares first, then free nodes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regroup.service.cluster_state.allocations import JobAllocations, Member, members_of, without_allocated
from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Demand, Placement, Unplaceable, place_replacements
from regroup.service.store.rows.records import Allocation, AllocationKind


@dataclass(frozen=True)
class PromotedSpares:
    """Spare nodes that replace nodes of their job."""

    substitutes: dict[str, Member] = field(default_factory=dict[str, Member])
    """Id of a node that leaves → the spare that replaces it."""
    promoted: list[Allocation] = field(default_factory=list[Allocation])
    """Rows of the spares, as reservations for ranks."""
    released: set[str] = field(default_factory=set[str])
    """Names of the rows before: those of `promoted`, and surplus reservations of their nodes."""


@dataclass(frozen=True)
class Substitutes:
    """Other nodes for all nodes that a job must leave."""

    spares: PromotedSpares
    placed: Sequence[Member]
    """Nodes that no spare replaces."""
    placement: Placement
    """One slot for each node of `placed`, in order."""


def choose_substitutes(
    rows: Sequence[Allocation], own: JobAllocations, demand: Demand, leaving: Sequence[Member], nodes: Sequence[Node]
) -> Substitutes | Unplaceable:
    """Return another node for each of `leaving`, or why there are none.

    Args:
        rows: live allocations of all jobs.
        own: allocations of the job.
        demand: demand of the job at its current layout.
        nodes: nodes that the job may use.
    """
    reserved = {row.node_id for row in own.rows if row.kind is AllocationKind.RESERVATION}
    free = [node for node in without_allocated(nodes, rows) if node.id not in reserved]
    left = {member.node_id for member in leaving}
    spares = promote_spares(own.spares, leaving, nodes)
    others = [member for member in leaving if member.node_id not in spares.substitutes]
    staying = [member.domain for member in own.members if member.node_id not in left and member.domain]
    found = place_replacements(demand, [member.ranks for member in others], free, staying) if others else Placement(())
    return found if isinstance(found, Unplaceable) else Substitutes(spares, others, found)


def promote_spares(spares: Sequence[Allocation], leaving: Sequence[Member], nodes: Sequence[Node]) -> PromotedSpares:
    """Choose a usable spare for each of `leaving`, the largest first, as long as there are spares."""
    usable = {node.id for node in nodes if node.alive and not node.is_draining and not node.closed_reason}
    free = {spare.node_id: spare for spare in members_of(spares) if spare.node_id in usable}
    found = PromotedSpares()
    for member in sorted(leaving, key=lambda member: -member.ranks):
        enough = [spare for spare in free.values() if spare.ranks >= member.ranks]
        if not enough:
            continue
        spare = min(enough, key=lambda spare: spare.ranks)
        slots, missing = list[Allocation](), member.ranks
        for row in free.pop(spare.node_id).reservations:
            if missing > 0:
                data = {name: value for name, value in row.data.items() if name != "spare"}
                slots.append(replace(row, data=data))
                missing -= row.data["ranks"]
        found.substitutes[member.node_id] = Member(tuple(slots), tuple(member.numbers))
        found.promoted.extend(slots)
        found.released.update(row.name for row in spare.reservations)
    return found
