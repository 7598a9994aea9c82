"""Prediction of a drain: the new nodes of each job, found with the placement code of the controller."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from regroup.service.cluster_state.allocations import JobAllocations, slot_allocations
from regroup.service.cluster_state.drain_notices import nodes_to_use
from regroup.service.cluster_state.node_health import closed
from regroup.service.cluster_state.shared_spares import close_shared_spares
from regroup.service.cluster_state.substitutes import choose_substitutes
from regroup.service.domain.topology import Node
from regroup.service.operations.calculation import CALCULATIONS
from regroup.service.policy.detection.node_quarantine import QuarantinePolicy
from regroup.service.policy.placement.place import Placement, Unplaceable
from regroup.service.policy.scheduling.decide import demand_of
from regroup.service.ports.assignment import Drain
from regroup.service.ports.cluster import Cluster
from regroup.service.store.rows.records import Allocation, JobRow
from regroup.service.store.store import Store

Effect = Literal["moves", "shrinks_or_waits", "waits"]


@dataclass(frozen=True)
class NodeMove:
    """The ranks of a job on one node, and the node that gets them."""

    source: str
    """Name of the node that leaves."""
    target: str
    """Name of the node that replaces it."""
    ranks: int


@dataclass(frozen=True)
class JobMove:
    """The predicted effect on a job when its nodes leave."""

    job_id: str
    name: str
    project: str
    effect: Effect
    nodes: tuple[NodeMove, ...] = ()
    """Moves of its nodes; empty unless the effect is `moves`."""
    why: str = ""
    """Reason why no other nodes take its ranks; empty if it moves."""


@dataclass(frozen=True)
class DrainPredictor:
    """Reads the cluster, and predicts the moves of jobs."""

    store: Store
    cluster: Cluster
    rule: QuarantinePolicy

    async def predict(self, leaving: Collection[str], now: float) -> list[JobMove]:
        """Return what happens to the jobs on the nodes with these ids, by name of the job.

        Raises:
            UnavailableError: the cluster, the database or the calculation does not answer.
        """
        rows = await self.store.live_allocations()
        used = {row.job_id for row in rows if row.node_id in leaving and row.is_for_ranks}
        jobs = [job for job in await self.store.live_jobs() if job.id in used]
        nodes = await nodes_to_use(self.store, self.cluster)
        nodes = closed(nodes, await self.store.nodes.events(), now, self.rule)
        usable = {
            project: await close_shared_spares(self.store, nodes, project) for project in {j.project for j in jobs}
        }
        return await CALCULATIONS.run(predict_moves, jobs, rows, leaving, usable)


def predict_moves(
    jobs: Sequence[JobRow],
    rows: Sequence[Allocation],
    leaving: Collection[str],
    nodes: Mapping[str, Sequence[Node]],
) -> list[JobMove]:
    """Predict the moves of jobs, one after the other: each takes its nodes before the next one.

    The order in which the controller handles the jobs is not known in advance. With scarce capacity, another job may
    get the last free node.

    Args:
        jobs: jobs with ranks on the nodes that leave.
        rows: live allocations of all jobs.
        leaving: ids of the nodes that leave.
        nodes: project → the nodes that its jobs may use.
    """
    taken, moves = list(rows), list[JobMove]()
    for job in sorted(jobs, key=lambda job: (job.name, job.id)):
        own = JobAllocations.select(rows, job.id)
        try:
            left = [node for node in nodes[job.project] if node.id not in leaving]
            move, added = _move(job, own, taken, leaving, left)
        except Exception as error:  # of one job, whose record or spec is not valid: the others still count
            move, added = JobMove(job.id, job.name, job.project, "waits", (), f"its record is damaged: {error}"), ()
        moves.append(move)
        taken.extend(added)
    return moves


def _move(
    job: JobRow, own: JobAllocations, taken: Sequence[Allocation], leaving: Collection[str], nodes: Sequence[Node]
) -> tuple[JobMove, Sequence[Allocation]]:
    if isinstance(own.change, Drain):
        return JobMove(job.id, job.name, job.project, "moves", _begun_moves(own, own.change)), ()
    members = [member for member in own.members if member.node_id in leaving]
    spec, layout = job.parsed_spec(), own.assignment.layout
    demand = demand_of(spec, layout)
    found = choose_substitutes(taken, own, demand, members, nodes)
    if isinstance(found, Unplaceable):
        can_shrink = any(each.world_size < layout.world_size for each in spec.ladder)
        effect: Effect = "shrinks_or_waits" if can_shrink else "waits"
        return JobMove(job.id, job.name, job.project, effect, (), found.message), ()
    targets = {node_id: spare.name for node_id, spare in found.spares.substitutes.items()}
    targets |= {at.node_id: slot.node.name for at, slot in zip(found.placed, found.placement.slots, strict=True)}
    moves = tuple(NodeMove(member.name, targets[member.node_id], member.ranks) for member in members)
    added = slot_allocations(job, demand, Placement(found.placement.slots))
    return JobMove(job.id, job.name, job.project, "moves", moves), added


def _begun_moves(own: JobAllocations, drain: Drain) -> tuple[NodeMove, ...]:
    """Return the moves of a drain that has begun: the nodes before and after have the same order."""
    after = own.members
    if len(drain.nodes_before) == len(after):
        pairs = zip(drain.nodes_before, after, strict=True)
        return tuple(NodeMove(old.name, new.name, new.ranks) for old, new in pairs if old.node_id != new.node_id)
    added = [member for member in after if member.node_id in drain.added]
    return tuple(
        NodeMove(name, new.name, new.ranks) for name, new in zip(drain.planned.leaving.values(), added, strict=False)
    )
