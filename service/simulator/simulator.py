"""Simulation of a cluster's queue over weeks, in seconds, with the scheduling policy of the service.

Jobs and failures come from traces. The simulator makes three assumptions: the speed of a job is proportional to its
ranks, a job ends when its work is done, and jobs do not grow while they run. A node failure costs `lost_s` of work and
`restart_s`. The job continues on another node with free devices, or queues again.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regroup.service.domain.topology import Node
from regroup.service.policy.placement.place import Demand, Placement, place_replacements
from regroup.service.policy.scheduling.capacity import NodeRanks, free_of, resources_of, subtract
from regroup.service.policy.scheduling.decide import Admission, DecisionFault, SchedulingPolicy, decide
from regroup.service.policy.scheduling.entries import RunningJob, Size, WaitingJob
from regroup.service.policy.scheduling.preemption import Requeue, Shrink
from regroup.service.policy.scheduling.quota import Quota
from regroup.service.simulator.budgets import Budgets, BudgetUses
from regroup.service.simulator.report import Report, Tally, Wait
from regroup.service.spec.budget import UsageBudget


@dataclass(frozen=True)
class Arrival:
    """A job of the trace."""

    at_s: float
    job: WaitingJob
    """A negative `queued_s` is the time since which it waits before the simulation; any other becomes the time of its
    arrival. `pending_dependencies` are job ids."""
    work_s: float
    """Duration of the training at the requested size, in seconds."""
    budget: UsageBudget | None = None
    """Budget of the job. When it is used up, the job is suspended for the rest of the simulation."""

    @property
    def requested_size(self) -> Size:
        """The size at which the job takes `work_s`."""
        return self.job.sizes[-1]


@dataclass(frozen=True)
class Started:
    """A job that has devices at the begin of the simulation. The free resources of the nodes do not contain them."""

    arrival: Arrival
    """`work_s` is the remaining work at the requested size."""
    running_job: RunningJob


@dataclass(frozen=True)
class Outage:
    """A node failure of the trace."""

    at_s: float
    node_id: str
    duration_s: float


@dataclass(frozen=True)
class Costs:
    """Durations without training, in seconds."""

    start_s: float = 5.0
    """From the admission to the first step."""
    suspend_s: float = 60.0
    """From the request to suspend until the job has released its devices."""
    restart_s: float = 40.0
    """From a node failure until training resumes on another node."""
    lost_s: float = 60.0
    """Work that is repeated after a node failure."""


@dataclass
class _Live:
    """A job with allocated devices."""

    arrival: Arrival
    running_job: RunningJob
    trains_from_s: float
    left_s: float
    """Remaining work at `trains_from_s`, in seconds at the requested size."""
    version: int
    leaves_s: float | None = None

    def done_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.trains_from_s) * self.running_job.demand.ranks / self.arrival.requested_size.ranks

    @property
    def ends_s(self) -> float:
        return self.trains_from_s + self.left_s * self.arrival.requested_size.ranks / self.running_job.demand.ranks


_RULE = SchedulingPolicy()
_NO_BUDGETS = Budgets()
Observer = Callable[[float, Sequence[Node], Sequence[RunningJob]], None]


def simulate(
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    outages: Sequence[Outage] = (),
    quotas: Mapping[str, Quota] | None = None,
    budgets: Budgets = _NO_BUDGETS,
    *,
    until_s: float,
    rule: SchedulingPolicy = _RULE,
    costs: Costs = Costs(),
    pass_interval_s: float = 10.0,
    observe: Observer | None = None,
    started: Sequence[Started] = (),
) -> Report:
    """Simulate a cluster until `until_s`, and report its utilization and the waiting times.

    Args:
        nodes: Nodes with all resources free, except those of jobs in `started`.
        arrivals: Jobs of the trace.
        outages: Node failures of the trace.
        quotas: Quota of each project.
        budgets: Budgets of projects, and the price of a device-hour.
        until_s: End of the simulation.
        rule: Scheduling policy.
        costs: Durations without training.
        pass_interval_s: Interval of scheduling passes. One pass handles all events of an interval.
        observe: Called with the time, the nodes and the running jobs after each pass. It may raise to end it.
        started: Jobs that have devices at the begin.
    """
    run = _Run(nodes, arrivals, outages, quotas or {}, budgets, rule, costs, until_s, started)
    while run.events and run.events[0][0] <= until_s:
        now_s = run.events[0][0]
        pass_s = min(until_s, (now_s // pass_interval_s + 1) * pass_interval_s)
        run.pass_until(pass_s)
        run.reconcile(pass_s)
        if observe is not None:
            observe(pass_s, list(run.nodes.values()), [live.running_job for live in run.live.values()])
    return run.report()


_Event = tuple[float, int, str, str, int]
"""Time, sequence number, kind, name of the job or node, and version of the job."""


@dataclass
class _Run:
    all_nodes: Sequence[Node]
    arrivals: Sequence[Arrival]
    outages: Sequence[Outage]
    quotas: Mapping[str, Quota]
    budgets: Budgets
    rule: SchedulingPolicy
    costs: Costs
    until_s: float
    started: Sequence[Started]
    nodes: dict[str, Node] = field(init=False)
    events: list[_Event] = field(init=False)
    queue: dict[str, WaitingJob] = field(default_factory=dict[str, WaitingJob])
    live: dict[str, _Live] = field(default_factory=dict[str, _Live])
    _left_s: dict[str, float] = field(default_factory=dict[str, float])
    _over: set[str] = field(default_factory=set[str])
    _lives: Counter[str] = field(default_factory=Counter[str])
    _at_budget: set[str] = field(default_factory=set[str])
    """Jobs that were suspended at a budget."""
    _check_s: float = -1.0
    """Time of the planned check of the budgets."""
    _count: int = 0

    def __post_init__(self) -> None:
        self.nodes = {node.id: node for node in self.all_nodes}
        all_arrivals = [*self.arrivals, *(each.arrival for each in self.started)]
        self._by_id = {arrival.job.job_id: arrival for arrival in all_arrivals}
        self.events = []
        self.tally = Tally(self.all_nodes)
        own = {arrival.job.job_id: (arrival.job.project, arrival.budget) for arrival in all_arrivals}
        self.uses = BudgetUses(self.budgets, own)
        for arrival in self.arrivals:
            self._at(arrival.at_s, "arrives", arrival.job.job_id)
        for each in self.started:
            self._continue(each)
        for outage in self.outages:
            self._at(outage.at_s, "fails", outage.node_id)
            self._at(outage.at_s + outage.duration_s, "returns", outage.node_id)

    def pass_until(self, pass_s: float) -> None:
        """Process all events before the next scheduling pass."""
        handlers = {
            "arrives": self._arrive, "ends": self._end, "leaves": self._leave, "fails": self._fail,
            "returns": self._return, "checks": self._check,
        }  # fmt: skip
        while self.events and self.events[0][0] < pass_s:
            at_s, _, what, whom, life = heapq.heappop(self.events)
            self.tally.advance(at_s)
            if what in ("ends", "leaves") and (whom not in self.live or self.live[whom].version != life):
                continue
            handlers[what](whom, at_s)
        self.tally.advance(pass_s)

    def reconcile(self, now_s: float) -> None:
        """Run one scheduling pass, as the controller does."""
        self._suspend_at_budgets(now_s)
        may_start = [job for job in self.queue.values() if not self.uses.is_used_up(job.job_id, now_s)]
        waiting = [replace(job, pending_dependencies=tuple(self._unmet(job))) for job in may_start]
        running = [replace(live.running_job, ends_s=live.leaves_s or live.ends_s) for live in self.live.values()]
        for decision in decide(waiting, list(self.nodes.values()), running, self.quotas, now_s=now_s, rule=self.rule):
            match decision:
                case Admission():
                    self._start(decision, now_s)
                case Requeue():
                    self._begin_to_leave(decision.job_id, now_s)
                case Shrink():
                    self._shrink(decision, now_s)
                case DecisionFault():
                    raise decision.error
                case _:
                    pass
        self.tally.record_fragmentation(self.nodes.values())
        self._plan_check(now_s)

    def report(self) -> Report:
        """Return the report of the whole simulation."""
        self.tally.advance(self.until_s)
        for live in self.live.values():
            self.tally.useful += min(live.done_s(self.until_s), live.left_s) * live.arrival.requested_size.ranks
        waiting = [(job, self.until_s - job.queued_s) for job in self.queue.values()]
        report = self.tally.report(len(self.arrivals), len(self._over), waiting)
        return replace(report, project_device_hours=self.uses.project_device_hours(self.until_s))

    # ------------------------------------------------------------ events

    def _arrive(self, job_id: str, now_s: float) -> None:
        job = self._by_id[job_id].job
        self.queue[job_id] = replace(job, queued_s=min(job.queued_s, 0.0) or now_s)

    def _end(self, job_id: str, now_s: float) -> None:
        live = self._stop(job_id, now_s)
        self.tally.useful += live.left_s * live.arrival.requested_size.ranks
        self._over.add(job_id)
        self.tally.ends_s[job_id] = now_s

    def _leave(self, job_id: str, now_s: float) -> None:
        """Requeue a job, or suspend it at a budget; its work so far is saved."""
        self._requeue(job_id, now_s, lost_s=0.0)
        if job_id in self._at_budget:
            del self.queue[job_id]  # a simulation raises no budget
            self.tally.budget_suspensions += 1
        else:
            self.tally.suspended += 1

    def _fail(self, node_id: str, now_s: float) -> None:
        self.nodes[node_id] = replace(self.nodes[node_id], alive=False)
        self.tally.failures += 1
        for job_id in [job_id for job_id, live in self.live.items() if node_id in dict(live.running_job.node_ranks)]:
            self._replace(job_id, node_id, now_s)

    def _check(self, _: str, now_s: float) -> None:
        """Do nothing: the next pass checks the budgets."""

    def _return(self, node_id: str, now_s: float) -> None:
        self.nodes[node_id] = replace(self.nodes[node_id], alive=True)

    def _replace(self, job_id: str, node_id: str, now_s: float) -> None:
        """Replace a failed node of a job, or put the job back into the queue."""
        live = self.live[job_id]
        slots = dict(live.running_job.node_ranks)
        others = [node for node in self.nodes.values() if node.id not in slots]
        found = (
            None if live.leaves_s is not None else place_replacements(live.running_job.demand, [slots[node_id]], others)
        )
        if not isinstance(found, Placement):
            self._requeue(job_id, now_s, lost_s=self.costs.lost_s)
            return
        done_s = max(0.0, live.done_s(now_s) - self.costs.lost_s)
        self.tally.useful += done_s * live.arrival.requested_size.ranks
        ranks = slots.pop(node_id)
        taken_over = (found.slots[0].node.id, ranks)
        self._release(live.running_job.demand, [(node_id, ranks)])
        self._allocate(live.running_job.demand, [taken_over])
        live.running_job = replace(live.running_job, node_ranks=(*slots.items(), taken_over))
        live.left_s, live.trains_from_s = live.left_s - done_s, now_s + self.costs.restart_s
        self._renew(job_id, live)

    # ------------------------------------------------------------ what is done

    def _continue(self, started: Started) -> None:
        """Let a job run that had its devices before the simulation."""
        job_id, running_job = started.running_job.job_id, started.running_job
        self.tally.allocated += running_job.demand.ranks
        self.uses.set_devices(job_id, running_job.demand.ranks, 0.0)
        live = self.live[job_id] = _Live(started.arrival, running_job, 0.0, started.arrival.work_s, 0)
        self._renew(job_id, live)

    def _start(self, admission: Admission, now_s: float) -> None:
        job, arrival = self.queue.pop(admission.job_id), self._by_id[admission.job_id]
        slots = tuple((slot.node.id, slot.ranks) for slot in admission.placement.slots)
        self._allocate(admission.demand, slots)
        smaller = tuple(size for size in job.sizes if size.ranks < admission.demand.ranks)
        running_job = RunningJob(
            job.job_id, job.name, admission.demand, slots, smaller, job.project, job.priority, job.preemptibility, now_s
        )
        left_s = self._left_s.pop(admission.job_id, arrival.work_s)
        self.tally.starts_s.setdefault(admission.job_id, now_s)
        if admission.job_id not in self._lives:
            self.tally.waits.append(Wait(job.project, job.priority, now_s - arrival.at_s))
        self.uses.set_devices(admission.job_id, admission.demand.ranks, now_s)
        live = self.live[admission.job_id] = _Live(arrival, running_job, now_s + self.costs.start_s, left_s, 0)
        self._renew(admission.job_id, live)

    def _shrink(self, decision: Shrink, now_s: float) -> None:
        live = self.live[decision.job_id]
        done_s, released = live.done_s(now_s), dict(decision.releases)
        self.tally.useful += done_s * live.arrival.requested_size.ranks
        self._release(live.running_job.demand, decision.releases)
        slots = tuple((node_id, ranks - released.get(node_id, 0)) for node_id, ranks in live.running_job.node_ranks)
        size = next(size for size in live.running_job.smaller_sizes if size.layout == decision.layout)
        smaller = tuple(each for each in live.running_job.smaller_sizes if each.ranks < size.ranks)
        kept = tuple(slot for slot in slots if slot[1])
        self.uses.set_devices(decision.job_id, size.ranks, now_s)
        live.running_job = replace(live.running_job, demand=size.demand, node_ranks=kept, smaller_sizes=smaller)
        live.left_s, live.trains_from_s = live.left_s - done_s, now_s + self.costs.start_s
        self._renew(decision.job_id, live)

    def _requeue(self, job_id: str, now_s: float, lost_s: float) -> None:
        live = self._stop(job_id, now_s)
        done_s = min(live.left_s, max(0.0, live.done_s(now_s) - lost_s))
        self.tally.useful += done_s * live.arrival.requested_size.ranks
        self._left_s[job_id] = live.left_s - done_s
        self.queue[job_id] = replace(live.arrival.job, queued_s=now_s)

    def _suspend_at_budgets(self, now_s: float) -> None:
        """Suspend the jobs whose budgets would be used up before they have released their devices."""
        for job_id in self.uses.due_jobs(now_s, self.costs.suspend_s):
            if self.live[job_id].leaves_s is None:
                self._begin_to_leave(job_id, now_s)
                self._at_budget.add(job_id)

    def _begin_to_leave(self, job_id: str, now_s: float) -> None:
        live = self.live[job_id]
        live.running_job = replace(live.running_job, is_releasing=True)
        live.leaves_s = now_s + self.costs.suspend_s
        self._at(live.leaves_s, "leaves", job_id, live.version)

    def _plan_check(self, now_s: float) -> None:
        """Plan a pass for the time at which the next budget is due, unless one is planned."""
        due_s = self.uses.next_due_s(now_s, self.costs.suspend_s)
        if due_s is not None and not now_s < self._check_s <= due_s:
            self._check_s = due_s
            self._at(due_s, "checks", "")

    def _stop(self, job_id: str, now_s: float) -> _Live:
        live = self.live.pop(job_id)
        self.uses.set_devices(job_id, 0, now_s)
        self._release(live.running_job.demand, live.running_job.node_ranks)
        return live

    def _renew(self, job_id: str, live: _Live) -> None:
        """Schedule the new end of a job, and invalidate the former one."""
        self._lives[job_id] += 1
        live.version = self._lives[job_id]
        self._at(live.ends_s, "ends", job_id, live.version)

    def _unmet(self, job: WaitingJob) -> list[str]:
        return [job_id for job_id in job.pending_dependencies if job_id not in self._over]

    def _allocate(self, demand: Demand, slots: NodeRanks) -> None:
        self._change(demand, slots, 1)

    def _release(self, demand: Demand, slots: NodeRanks) -> None:
        self._change(demand, slots, -1)

    def _change(self, demand: Demand, slots: NodeRanks, sign: int) -> None:
        for node_id, ranks in slots:
            node = self.nodes[node_id]
            free = subtract(free_of(node), resources_of(demand, sign * ranks))
            self.nodes[node_id] = replace(node, free_cpus=free[0], free_gpus=free[1], free_memory_bytes=free[2])
            self.tally.allocated += sign * ranks

    def _at(self, at_s: float, what: str, whom: str, life: int = 0) -> None:
        self._count += 1
        heapq.heappush(self.events, (at_s, self._count, what, whom, life))
