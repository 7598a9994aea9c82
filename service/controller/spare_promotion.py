"""Spares of a job in the place of nodes that it loses or leaves: their reservations become seats. No decision but which."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from regroup.service.cluster_state.allocations import Member, members_of
from regroup.service.domain.topology import Node
from regroup.service.store.records import Allocation


@dataclass(frozen=True)
class PromotedSpare:
    """What becomes of the spares."""

    heirs: dict[str, Member] = field(default_factory=dict[str, Member])
    """Node id of one that leaves → what takes its place."""
    turned: list[Allocation] = field(default_factory=list[Allocation])
    """Rows of spares as seats."""
    released: set[str] = field(default_factory=set[str])
    """Names of the rows as they were: those of `turned`, and reservations of their nodes that are too many."""


def enlist(spares: Sequence[Allocation], leaving: Sequence[Member], nodes: Sequence[Node]) -> PromotedSpare:
    """A spare for each of `leaving`, the largest first, as far as there are any on nodes that may be used."""
    usable = {node.id for node in nodes if node.alive and not node.is_draining and not node.closed_reason}
    free = {spare.node_id: spare for spare in members_of(spares) if spare.node_id in usable}
    found = PromotedSpare()
    for member in sorted(leaving, key=lambda member: -member.ranks):
        enough = [spare for spare in free.values() if spare.ranks >= member.ranks]
        if not enough:
            continue
        spare = min(enough, key=lambda spare: spare.ranks)
        seats, missing = list[Allocation](), member.ranks
        for row in free.pop(spare.node_id).reservations:
            if missing > 0:
                data = {name: value for name, value in row.data.items() if name != "spare"}
                seats.append(replace(row, data=data))
                missing -= row.data["ranks"]
        found.heirs[member.node_id] = Member(tuple(seats), tuple(member.numbers))
        found.turned.extend(seats)
        found.released.update(row.name for row in spare.reservations)
    return found
