"""Choose the bytes that one node fetches, and their holders. Pure: values in, decisions out.

Each byte that the ranks of a node need and that the node does not hold is fetched once. Nothing else is fetched.
Tensors in the same boxes share a plan, so the work grows with the ranks and with the forms of tensors, not
with the layers of a model.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest

from regroup.workers.state.slices.box_index import BoxIndex
from regroup.workers.state.slices.box_table import BoxTable, Form, TensorBox
from regroup.workers.state.slices.boxes import Box, region_of
from regroup.workers.state.slices.held_state import HeldState, Holder
from regroup.workers.state.slices.tensor_groups import Signature, TensorGroups
from regroup.workers.state.slices.transfer_plan import GroupPlan, HeldPart, RankPart, TransferPlan
from regroup.workers.state.state_error import StateError

CHUNK_BYTES = 4 << 20
"""Largest transfer. A damaged one is repeated, and those of one tensor come from several holders at once."""


def plan_transfers(
    held: HeldState,
    needed: Mapping[int, BoxTable],
    *,
    near: Collection[Holder] = (),
    node_number: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> TransferPlan:
    """Plan the transfers of one node, for all of its ranks at once.

    Args:
        held: boxes of the state with their holders.
        needed: rank of this node → the boxes that it needs, with positions in its buffer.
        near: holders on this node.
        node_number: number of this node. Nodes with different numbers prefer different replicas.
        chunk_bytes: largest transfer in bytes.

    Raises:
        StateError: The holders do not have all that is needed.
    """
    return _Planner(held, needed, near, node_number, chunk_bytes).plan()


class _Planner:
    def __init__(
        self,
        held: HeldState,
        needed: Mapping[int, BoxTable],
        near: Collection[Holder],
        node_number: int,
        chunk_bytes: int,
    ) -> None:
        self._held, self._needed, self._near = held, needed, near
        self._node_number, self._chunk_bytes = node_number, chunk_bytes
        self._ranks, self._tables = list(needed), list(needed.values())
        self._load: dict[int, int] = {}
        """Table → bytes that are fetched from it."""

    def plan(self) -> TransferPlan:
        groups = TensorGroups(self._tables)
        together: dict[tuple[Signature, Signature], list[str]] = {}
        for name, requested in groups.signatures.items():
            together.setdefault((self._held.groups.signatures.get(name, ()), requested), []).append(name)
        plans = [
            self._plan_group(
                names, held, [(self._ranks[table], self._tables[table].boxes[box]) for table, box in places]
            )
            for (held, requested), names in together.items()
            for places in [groups.tables_of(requested)]
        ]
        return TransferPlan(self._held, self._needed, groups, plans, self._load)

    def _plan_group(self, names: Sequence[str], held: Signature, needed: Sequence[tuple[int, TensorBox]]) -> GroupPlan:
        plan = GroupPlan(names)
        given: dict[Form, list[tuple[int, Box]]] = {}
        near: dict[Form, BoxIndex] = {}
        for rank, requested in needed:
            if requested.form not in near:
                near[requested.form] = self._held.index_at(self._near, held, requested.form)
            found, rest = near[requested.form].cover([requested.box])
            for common, whole, tables in found:
                chunks = common.split(self._chunk_bytes // requested.item_bytes)
                plan.copied += [_part(chunk, whole, requested, rank, tables[:1]) for chunk in chunks]
            earlier = given.setdefault(requested.form, [])
            rest = _pass_on(plan, requested, rank, rest, earlier)
            earlier.append((rank, requested.box))
            plan.missing_bytes += sum(box.size for box in rest) * requested.item_bytes
            found, rest = self._held.index(held, requested.form).cover(rest)
            if missing := sum(box.size for box in rest):
                raise StateError(
                    f"the available shards lack {missing} of {requested.box.size} values of {names[0]!r} "
                    f"for rank {rank}"
                )
            for common, whole, tables in found:
                self._fetch(plan, common, whole, requested, rank, tables)
        return plan

    def _fetch(
        self, plan: GroupPlan, common: Box, whole: Box, requested: TensorBox, rank: int, tables: Sequence[int]
    ) -> None:
        """Fetch a part in chunks. Chunks and tensors of the group take turns among the tables that have it."""
        first = self._node_number % len(tables)
        turned = [*tables[first:], *tables[:first]]
        for chunk in common.split(self._chunk_bytes // requested.item_bytes):
            size_bytes = chunk.size * requested.item_bytes
            # Few bytes come from one table, so that small tensors do not need a connection to every holder.
            most = -(-size_bytes * len(plan.names) // self._chunk_bytes)
            order = tuple(nsmallest(most, turned, key=lambda table: self._load.get(table, 0)))
            plan.fetched.append(_part(chunk, whole, requested, rank, order))
            rounds, more = divmod(len(plan.names), len(order))
            for number, table in enumerate(order):
                self._load[table] = self._load.get(table, 0) + (rounds + (number < more)) * size_bytes


def _pass_on(
    plan: GroupPlan, requested: TensorBox, rank: int, rest: Sequence[Box], earlier: Sequence[tuple[int, Box]]
) -> list[Box]:
    """Plan copies of what earlier ranks of the node get, and return what remains."""
    left = list(rest)
    for source_rank, whole in earlier if rest else ():
        remaining: list[Box] = []
        for box in left:
            common = box.intersect(whole)
            if common is None:
                remaining.append(box)
                continue
            source, target = (region_of(common, place, requested.item_bytes) for place in (whole, requested.box))
            plan.passed_on.append(RankPart(source, rank, target, source_rank))
            remaining += box.subtract(common)
        left = remaining
    return left


def _part(part: Box, whole: Box, requested: TensorBox, rank: int, tables: Sequence[int]) -> HeldPart:
    source, target = (region_of(part, place, requested.item_bytes) for place in (whole, requested.box))
    return HeldPart(source, rank, target, tuple(tables))
