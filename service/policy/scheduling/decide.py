"""Decide about the queue: which jobs start where, which wait and why, and which are preempted.

The first job in admission order that does not fit gets a reserved start. Later jobs may start before it only if they do
not delay it (`backfill`). `fair_share` defines the order, `quota` the limits of projects, `preemption` the jobs to
preempt.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regroup.service.domain.layout import Layout
from regroup.service.domain.topology import Node, NodeKind
from regroup.service.policy.placement.link_speeds import Links
from regroup.service.policy.placement.place import Demand, Placement, Shortage, Unplaceable, fits_empty_cluster, place
from regroup.service.policy.placement.traffic import axes_of_spec
from regroup.service.policy.scheduling.backfill import BackfillCapacity, BackfillReservation, reserve_start
from regroup.service.policy.scheduling.capacity import Capacity
from regroup.service.policy.scheduling.entries import Preemptibility, RunningJob, Size, WaitingJob, split_shrinking_job
from regroup.service.policy.scheduling.fair_share import AdmissionOrder
from regroup.service.policy.scheduling.preemption import Requeue, Shrink, choose_preemptions, will_fit
from regroup.service.policy.scheduling.quota import Quota, QuotaBlock, QuotaUsage, WaitCause
from regroup.service.spec.job import JobSpec

_MOST_NODES_NAMED = 256
"""In a larger cluster, messages do not list single nodes."""


@dataclass(frozen=True)
class SchedulingPolicy:
    """Parameters of the scheduler."""

    ageing_s: float = 6 * 3600.0
    """Waiting time after which a job rises by one priority class."""
    min_run_s: float = 600.0
    """Time after its allocation during which a job is not preempted."""
    can_resize: bool = False
    """True if jobs can shrink and grow while they run."""
    can_start_small: bool = True
    """True if a resizable job may start below its requested size when capacity is short."""
    links: Mapping[str, Links] = field(default_factory=dict[str, Links])
    """Device type → speed of the connections between nodes. Default: the built-in table."""
    max_nodes_weighed: int = 50_000
    """Number of nodes that one pass may evaluate for jobs that start. The next pass continues with the remaining
    jobs."""


@dataclass(frozen=True)
class Admission:
    """The job starts on these nodes now."""

    job_id: str
    layout: Layout
    demand: Demand
    placement: Placement


@dataclass(frozen=True)
class WaitReason:
    """Reason why a job waits, for programs and people."""

    reason: Shortage | WaitCause
    message: str


@dataclass(frozen=True)
class Wait:
    """The job stays queued."""

    job_id: str
    why: WaitReason
    start_s: float | None = None
    """Expected start in Unix seconds; None if it cannot be predicted."""


@dataclass(frozen=True)
class DecisionFault:
    """The decision about the job failed. The decisions about all other jobs stand."""

    job_id: str
    error: Exception


SchedulingDecision = Admission | Wait | Shrink | Requeue | DecisionFault


def decide(
    queue: Sequence[WaitingJob],
    nodes: Sequence[Node],
    running: Sequence[RunningJob] = (),
    quotas: Mapping[str, Quota] | None = None,
    *,
    now_s: float = 0.0,
    rule: SchedulingPolicy = SchedulingPolicy(),
) -> list[SchedulingDecision]:
    """Return the decisions of one scheduling pass, in admission order.

    Jobs that the pass did not reach (`rule.max_nodes_weighed`) have no decision.
    """
    scheduling = _SchedulingPass(nodes, running, quotas or {}, now_s, rule)
    for job in AdmissionOrder(queue, scheduling.usage, now_s=now_s, ageing_s=rule.ageing_s):
        if scheduling.weighed > rule.max_nodes_weighed:
            break
        try:
            scheduling.decide_job(job)
        except Exception as error:  # of one job: it must not keep others from starting
            scheduling.decisions.append(DecisionFault(job.job_id, error))
    return scheduling.decisions


def queue_positions(
    queue: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    quotas: Mapping[str, Quota],
    *,
    now_s: float,
    rule: SchedulingPolicy,
) -> dict[str, int]:
    """Return the number of jobs ahead of each queued job."""
    order = AdmissionOrder(queue, quota_usage_of(running, quotas), now_s=now_s, ageing_s=rule.ageing_s)
    return {job.job_id: ahead for ahead, job in enumerate(order)}


def demand_of(spec: JobSpec, layout: Layout) -> Demand:
    """Return the demand of a job at this layout."""
    each = spec.resources
    axes, where = axes_of_spec(spec, layout), spec.topology.demand_fields()
    kind = NodeKind(each.accelerator or "", spec.environment.image or "", each.cluster or "")
    cpus, memory_bytes = each.cpus, each.memory or 0
    return Demand(
        layout.world_size, layout.segment_size, each.device, cpus, memory_bytes, **where, kind=kind, axes=axes
    )


def sizes_of(spec: JobSpec) -> tuple[Size, ...]:
    """Return the legal sizes up to the requested one, the smallest first."""
    return up_to_target(spec, [Size(layout, demand_of(spec, layout)) for layout in spec.ladder])


def up_to_target(spec: JobSpec, sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Return the sizes of a job up to the requested one."""
    target = spec.layout.layout_at(spec.layout.dp.target).world_size
    return tuple(size for size in sizes if size.ranks <= target)


class _SchedulingPass:
    """One scheduling pass. Later decisions take earlier ones as done."""

    def __init__(
        self,
        nodes: Sequence[Node],
        running: Sequence[RunningJob],
        quotas: Mapping[str, Quota],
        now_s: float,
        rule: SchedulingPolicy,
    ) -> None:
        self.decisions: list[SchedulingDecision] = []
        self._preempted: dict[str, Shrink | Requeue] = {}
        self.usage = quota_usage_of(running, quotas)
        self.weighed = 0
        self._nodes, self._now_s, self._rule = nodes, now_s, rule
        self._running = [replace(job, ends_s=now_s) if job.is_releasing else job for job in running]
        self._spare = BackfillCapacity(Capacity(nodes))
        self._too_many: dict[tuple[int, Demand], int] = {}
        """Smallest number of ranks that did not fit, by capacity and demand without its ranks. More ranks do not fit
        either."""
        self._ever: dict[Demand, bool] = {}
        self._quota_waiters: dict[str, str] = {}
        """Project whose quota is used up → the job that waits for it."""

    def decide_job(self, job: WaitingJob) -> None:
        """Decide about the next job."""
        if job.pending_dependencies:
            names = ", ".join(job.pending_dependencies)
            self._wait(
                job,
                WaitCause.DEPENDENCY,
                f"depends on {names}, which {_have(job.pending_dependencies)} not succeeded yet",
            )
            return
        capacity = {size.ranks: self._spare.before_reservations.total_ranks(size.demand) for size in job.sizes}
        sizes = [size for size in job.sizes if capacity[size.ranks] >= size.ranks]
        if not sizes:
            self._wait_for_nodes(job, job.sizes[0].demand)
            return
        if (first := self._quota_waiters.get(job.project)) is not None:
            self._wait(job, Shortage.PRIORITY, f"job {first!r} of the same project is ahead and waits for quota")
            return
        sizes = [size for size in sizes if not self._is_barred(job, size, capacity[size.ranks])] or sizes[:1]
        tries = sizes[::-1] if self._rule.can_resize and self._rule.can_start_small else sizes[-1:]
        held = None
        for size in tries:
            held = self._held(job, size, capacity[size.ranks])
            if held is None and self._starts(job, size):
                return
        if held is not None:
            if not held.is_permanent:
                self._quota_waiters[job.project] = job.name
            self._wait(job, held.reason, held.message)
            return
        if (ahead := self._ahead(tries[-1].demand)) is not None:
            message = f"{ahead.job.text_for(job.project)} is ahead and waits for devices"
            self._wait(job, Shortage.PRIORITY, message)
            return
        possible = [size for size in sizes if size.ranks <= tries[-1].ranks and self._fits_empty(size.demand)]
        if not possible:
            self._wait_for_nodes(job, tries[-1].demand)
        elif possible[-1] is tries[-1] or not self._starts(job, possible[-1]):
            self._reserve_start(job, possible[-1])

    def _ahead(self, demand: Demand) -> BackfillReservation | None:
        """Return the earlier reservation for the same device type in the same cluster, if there is one."""
        for promise in self._spare.reservations:
            if (promise.demand.device, promise.demand.kind.cluster) == (demand.device, demand.kind.cluster):
                return promise
        return None

    def _fits_empty(self, demand: Demand) -> bool:
        """Return True if the demand fits into the empty cluster. Enough total capacity does not imply that."""
        if demand not in self._ever:
            self._ever[demand] = fits_empty_cluster(demand, self._nodes)
        return self._ever[demand]

    def _is_barred(self, job: WaitingJob, size: Size, capacity: int) -> bool:
        held = self._held(job, size, capacity)
        return held is not None and held.is_permanent

    def _held(self, job: WaitingJob, size: Size, capacity: int) -> QuotaBlock | None:
        free = self._spare.before_reservations.free_ranks(size.demand)
        return self.usage.find_block(
            job.project, size.ranks, job.non_preemptible_ranks(size.ranks), free=free, capacity=capacity
        )

    def _starts(self, job: WaitingJob, size: Size) -> bool:
        ends_s = None if job.max_duration_s is None else self._now_s + job.max_duration_s
        capacity = self._spare.capacity_for(ends_s)
        placement = self._place(size.demand, capacity)
        if placement is None:
            return False
        self._spare.allocate(size.demand, placement, capacity)
        self.usage.add(job.project, size.ranks, job.non_preemptible_ranks(size.ranks))
        slots = tuple((slot.node.id, slot.ranks) for slot in placement.slots)
        self._running.append(
            RunningJob(
                job.job_id, job.name, size.demand, slots, project=job.project, priority=job.priority,
                preemptibility=Preemptibility.none, allocated_at_s=self._now_s, ends_s=ends_s,
            )
        )  # fmt: skip
        self.decisions.append(Admission(job.job_id, size.layout, size.demand, placement))
        return True

    def _place(self, demand: Demand, capacity: Capacity) -> Placement | None:
        """Place a demand. Capacity only shrinks in a pass: a demand that did not fit, and larger ones, are not tried
        again."""
        like = (id(capacity), replace(demand, ranks=demand.segment))
        if demand.ranks >= self._too_many.get(like, demand.ranks + 1) or capacity.free_ranks(demand) < demand.ranks:
            return None
        nodes = capacity.candidate_nodes(demand)
        self.weighed += len(nodes)
        outcome = place(demand, nodes, self._rule.links.get(demand.device))
        if isinstance(outcome, Placement):
            return outcome
        self._too_many[like] = demand.ranks
        return None

    def _reserve_start(self, job: WaitingJob, size: Size) -> None:
        """Reserve a start for a job that does not fit now and is the first of its device type."""
        demand = size.demand
        preemptions: list[Shrink | Requeue] = []
        coming = will_fit(demand, self._spare.beside_reservations, self._running)
        if not coming:
            preemptions = choose_preemptions(
                job, size, self._spare.beside_reservations, self._running, self.usage,
                now_s=self._now_s, min_run_s=self._rule.min_run_s, can_shrink=self._rule.can_resize,
            )  # fmt: skip
            self._running = _apply_preemptions(self._running, preemptions, self._now_s)
        promise = reserve_start(
            job.reference,
            demand,
            self._spare.before_reservations,
            self._running,
            tuple(self._spare.reservations),
        )
        self._spare.add_reservation(promise)
        self._add_preemptions(preemptions)
        if preemptions or coming:
            releasing = (other.reference.text_for(job.project) for other in self._running if other.is_releasing)
            names = dict.fromkeys(releasing)  # a shrinking job may release several parts
            self._wait(
                job,
                WaitCause.PREEMPTION,
                f"preempting {', '.join(names)} to free devices for this job",
                promise.start_s,
            )
        else:
            self._wait_for_nodes(job, demand, promise)

    def _add_preemptions(self, preemptions: Sequence[Shrink | Requeue]) -> None:
        """Add preemptions. A job has one: a further one of this pass replaces it, and includes what it releases."""
        for each in preemptions:
            earlier = self._preempted.get(each.job_id)
            if earlier is None:
                self._preempted[each.job_id] = each
                self.decisions.append(each)
            else:
                whole = self._preempted[each.job_id] = each.after(earlier)
                self.decisions[self.decisions.index(earlier)] = whole

    def _wait_for_nodes(self, job: WaitingJob, demand: Demand, promise: BackfillReservation | None = None) -> None:
        why = _explain_wait(demand, self._nodes, self._spare.before_reservations, is_possible=promise is not None)
        self._wait(job, why.reason, why.message, promise.start_s if promise else None)

    def _wait(self, job: WaitingJob, reason: Shortage | WaitCause, message: str, start_s: float | None = None) -> None:
        self.decisions.append(Wait(job.job_id, WaitReason(reason, message), start_s))


def quota_usage_of(running: Sequence[RunningJob], quotas: Mapping[str, Quota]) -> QuotaUsage:
    """Return the quota usage of projects with these running jobs."""
    usage = QuotaUsage(quotas)
    for job in running:
        usage.add(job.project, job.demand.ranks, job.non_preemptible_ranks)
    return usage


def _apply_preemptions(
    running: Sequence[RunningJob], preemptions: Sequence[Shrink | Requeue], now_s: float
) -> list[RunningJob]:
    """Return the jobs after the preemptions: the released resources are about to become free."""
    preempted = {preemption.job_id: preemption for preemption in preemptions}
    after: list[RunningJob] = []
    for job in running:
        match preempted.get(job.job_id):
            case None:
                after.append(job)
            case Requeue():
                after.append(replace(job, is_releasing=True, ends_s=now_s))
            case Shrink() as preemption if job.smaller_sizes:
                after += split_shrinking_job(job, preemption.releases, now_s)
            case Shrink():  # another part of what the job holds: that stays, or is going already
                after.append(job)
    return after


def _explain_wait(demand: Demand, nodes: Sequence[Node], capacity: Capacity, *, is_possible: bool) -> WaitReason:
    """Return the reason why a demand does not fit now, node by node in a small cluster."""
    if len(nodes) <= _MOST_NODES_NAMED:
        outcome = place(demand, [capacity.get(node) for node in nodes])
        if isinstance(outcome, Unplaceable):
            return WaitReason(outcome.reason, outcome.message)
        return WaitReason(Shortage.PRIORITY, f"needs {demand}; the free devices are reserved for jobs that are ahead")
    free, everything = capacity.free_ranks(demand), capacity.total_ranks(demand)
    if is_possible:
        return WaitReason(Shortage.RESOURCES, f"needs {demand}; {free} of {everything} are free now")
    with_closed = Capacity(replace(node, closed_reason="") for node in nodes).total_ranks(demand)
    reason = Shortage.NODES_CLOSED if with_closed >= demand.ranks else Shortage.TOO_LARGE
    return WaitReason(reason, f"needs {demand}; the open nodes hold {everything} ranks in total")


def _have(names: Sequence[str]) -> str:
    return "have" if len(names) > 1 else "has"
