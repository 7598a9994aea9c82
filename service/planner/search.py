"""Search for the fastest plans that fit. It evaluates all plans except those that cannot be among the best.

Two bounds cut the search; both are safe. If the states of a sharding alone exceed the device's memory, no micro-batch
and no recomputation makes it fit, because their memory is never negative. If a plan is too slow without the time of
data parallelism, it stays too slow, because that time is never negative. A test compares with `cut=False`.
"""

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from regroup.service.domain.errors import SpecError
from regroup.service.domain.layout import Layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import (
    MIXED_ADAM,
    Checkpointing,
    PipelineSchedule,
    Sharding,
    StateBytes,
    state_bytes,
)
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.time_model import StepTime, add_data_parallelism, core_time, cost_kind
from regroup.service.planner.types import Cluster, Plan, Work
from regroup.service.planner.validation import (
    check_request,
    no_layout_issue,
    no_runnable_plan_issue,
    out_of_memory_issue,
)

_CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "selective", "full")
_SCHEDULES: tuple[tuple[PipelineSchedule, int], ...] = (
    ("1f1b", 1), ("interleaved_1f1b", 2), ("interleaved_zero_bubble", 2), ("zbv", 2),
)  # fmt: skip
"""Schedules to search. GPipe is left out: it has the time of 1F1B and never less memory."""
_NO_SELECTIVE = ("interleaved_zero_bubble", "zbv")
"""Schedules that split backward in two. There, torch 2.13 runs the operations of selective checkpointing twice."""


@dataclass(frozen=True)
class Limits:
    """Limits of the search."""

    shardings: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "fsdp")
    schedules: tuple[tuple[PipelineSchedule, int], ...] = _SCHEDULES
    checkpointing: tuple[Checkpointing, ...] = _CHECKPOINTING
    max_tp: int = 0
    """Maximum tensor-parallel degree; 0 for the devices of a fast-interconnect domain."""
    max_pp: int = 0
    """Maximum pipeline-parallel degree; 0 for the number of layers."""
    max_cp: int = 1
    max_micro_batch: int = 64
    tp: int = 0
    """Fixed tensor-parallel degree; 0 for any."""
    pp: int = 0
    """Fixed pipeline-parallel degree; 0 for any."""
    micro_batch: int = 0
    """Fixed micro-batch; 0 for any."""
    sequence_parallel: bool = True
    top: int = 5
    """Number of best plans to return."""
    states: StateBytes = MIXED_ADAM
    """Bytes per parameter."""


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan with its predicted time and memory."""

    plan: Plan
    time: StepTime
    peak_bytes: float

    @property
    def order(self) -> tuple[float, float, str]:
        """Sort key: time, then memory, then text, so that the order does not depend on the order of the search."""
        return (self.time.step_s, self.peak_bytes, repr(self.plan))


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    best: tuple[EvaluatedPlan, ...]
    notable: tuple[EvaluatedPlan, ...]
    """The fastest plan that fits of each kind of layout without a plan in `best`."""
    too_large: tuple[EvaluatedPlan, ...]
    """The plan with the least memory of each kind of layout without a plan that fits."""
    timed: int
    """Number of plans whose time was computed."""


Reject = Callable[[Plan], Sequence[str]]
"""Function that returns the reasons why a plan is not available, independent of time and memory; empty if it is."""


def search(
    work: Work,
    cluster: Cluster,
    constants: Constants,
    limits: Limits | None = None,
    *,
    cut: bool = True,
    reject: Reject = lambda _: (),
) -> SearchResult:
    """Find the fastest plans of `work` on all devices of `cluster`.

    Args:
        cut: skip plans that cannot be among the best.
        reject: called for plans that would be among the best.

    Raises:
        SpecError: the request is invalid, no layout is legal, or no plan fits. The issue names the limit.
    """
    limits = limits or Limits()
    check_request(work, cluster)
    constants = constants.on(cluster.device)
    capacity_bytes = cluster.device.memory_bytes
    leaders, smallest, timed = _Leaders(limits.top), _Smallest(), 0
    rejected: tuple[float, Plan, Sequence[str]] | None = None
    for tp, cp, pp in degrees(work, cluster, limits):
        shardings = list(_shardings(work, cluster, limits, tp, cp, pp))
        shapes = list(_shapes(work, shardings[0][0], limits)) if shardings else []
        if not shapes:
            continue
        for layout, sharding in shardings:
            mode = "full" if "full" in limits.checkpointing else limits.checkpointing[-1]
            least = Plan(layout, limits.micro_batch or 1, sharding, mode, sequence_parallel=limits.sequence_parallel)
            smallest.add(work, cluster, least, constants, peak_bytes(work, least, constants, limits.states))
        fitting = [each for each in shardings if not cut or _min_state_bytes(work, *each, limits) <= capacity_bytes]
        for shape in shapes if fitting else ():
            cores = dict[str, StepTime]()
            timed += 1
            for layout, sharding in fitting:
                plan = shape(layout, sharding)
                measured = cost_kind(cluster, plan)
                core = cores[measured] = cores.get(measured) or core_time(work, cluster, plan, constants)
                if cut and leaders.are_ahead_of(core.step_s, layout_kind(plan)):
                    continue
                need = peak_bytes(work, plan, constants, limits.states)
                if need > capacity_bytes:
                    continue
                choice = EvaluatedPlan(plan, add_data_parallelism(core, work, cluster, plan, constants), need)
                if not leaders.accepts(choice):
                    continue
                if why := reject(plan):
                    candidate = (choice.time.step_s, plan, why)
                    rejected = min(rejected or (math.inf, plan, why), candidate, key=lambda each: each[0])
                else:
                    leaders.add(choice)
    if not smallest.by_kind:
        max_tp = max(tp for tp in range(1, _max_tp(cluster, limits) + 1) if _splits(work, tp))
        raise SpecError([no_layout_issue(work, cluster, max_tp, limits.max_pp or work.model.layers)])
    if not leaders.best and rejected:
        raise SpecError([no_runnable_plan_issue(cluster, rejected[1], rejected[2])])
    if not leaders.best:
        least = min(smallest.by_kind.values(), key=lambda each: each.peak_bytes)
        raise SpecError([out_of_memory_issue(work, cluster, least.plan, least.peak_bytes, limits.states)])
    return SearchResult(tuple(leaders.best), leaders.notable(), smallest.too_large(leaders.by_kind), timed)


@dataclass
class _Leaders:
    """The best plans so far, in all and of each kind."""

    top: int
    best: list[EvaluatedPlan] = field(default_factory=list[EvaluatedPlan])
    by_kind: dict[str, EvaluatedPlan] = field(default_factory=dict[str, EvaluatedPlan])

    def are_ahead_of(self, at_least_s: float, name: str) -> bool:
        """Return True if a plan of this kind with at least this time cannot be among the best."""
        fastest = self.by_kind.get(name)
        if fastest is None or len(self.best) < self.top:
            return False
        return at_least_s > max(fastest.time.step_s, self.best[-1].time.step_s)

    def accepts(self, choice: EvaluatedPlan) -> bool:
        """Return True if the plan would be among the best, or the best of its kind."""
        return self._is_best_of_kind(choice) or self._is_among_best(choice)

    def add(self, choice: EvaluatedPlan) -> None:
        """Add a plan that fits."""
        if self._is_best_of_kind(choice):
            self.by_kind[layout_kind(choice.plan)] = choice
        if self._is_among_best(choice):
            self.best = sorted([*self.best, choice], key=lambda each: each.order)[: self.top]

    def notable(self) -> tuple[EvaluatedPlan, ...]:
        """Return the best plans of the kinds that have no plan in `best`."""
        shown = {layout_kind(each.plan) for each in self.best}
        others = (each for name, each in self.by_kind.items() if name not in shown)
        return tuple(sorted(others, key=lambda each: each.order))

    def _is_best_of_kind(self, choice: EvaluatedPlan) -> bool:
        fastest = self.by_kind.get(layout_kind(choice.plan))
        return fastest is None or choice.order < fastest.order

    def _is_among_best(self, choice: EvaluatedPlan) -> bool:
        return len(self.best) < self.top or choice.order < self.best[-1].order


@dataclass
class _Smallest:
    """The plan with the least memory of each kind."""

    by_kind: dict[str, EvaluatedPlan] = field(default_factory=dict[str, EvaluatedPlan])

    def add(self, work: Work, cluster: Cluster, plan: Plan, constants: Constants, need: float) -> None:
        """Add a plan that needs `need` bytes, even if it does not fit."""
        smallest = self.by_kind.get(layout_kind(plan))
        if smallest is None or need < smallest.peak_bytes:
            self.by_kind[layout_kind(plan)] = EvaluatedPlan(plan, core_time(work, cluster, plan, constants), need)

    def too_large(self, fitting: Container[str]) -> tuple[EvaluatedPlan, ...]:
        """Return the plans of the kinds that are not in `fitting`, smallest first."""
        large = (each for name, each in self.by_kind.items() if name not in fitting)
        return tuple(sorted(large, key=lambda each: each.peak_bytes))


def layout_kind(plan: Plan) -> str:
    """Return the usual name of a layout's kind: the sharding and the other degrees in use, for example `fsdp+tp`."""
    layout = plan.layout
    data = "hsdp" if plan.sharding == "fsdp" and layout.dp_replicate > 1 else plan.sharding
    parts = [data] if layout.data_degree > 1 else []
    parts += [name for name in ("tp", "cp", "pp") if getattr(layout, name) > 1]
    return "+".join(parts) or "one device"


def degrees(work: Work, cluster: Cluster, limits: Limits) -> Iterator[tuple[int, int, int]]:
    """Yield the legal tensor, context and pipeline degrees.

    The tensor degree divides the heads and the feed-forward width, and each pipeline stage has at least one layer.
    """
    model = work.model
    for tp in _divisors(cluster.gpus):
        if tp > _max_tp(cluster, limits) or not _splits(work, tp) or limits.tp not in (0, tp):
            continue
        for cp in _divisors(cluster.gpus // tp):
            if cp > limits.max_cp or work.sequence % cp:
                continue
            for pp in _divisors(cluster.gpus // (tp * cp)):
                data = cluster.gpus // (tp * cp * pp)
                if limits.pp not in (0, pp):
                    continue
                if pp <= (limits.max_pp or model.layers) and data <= work.global_batch:
                    yield tp, cp, pp


def _max_tp(cluster: Cluster, limits: Limits) -> int:
    return limits.max_tp or min(cluster.domain, cluster.gpus)


def _splits(work: Work, tp: int) -> bool:
    model = work.model
    return not (model.heads % tp or model.groups % tp or model.inner % tp)


def _shardings(
    work: Work, cluster: Cluster, limits: Limits, tp: int, cp: int, pp: int
) -> Iterator[tuple[Layout, Sharding]]:
    data = cluster.gpus // (tp * cp * pp)
    if data == 1:
        yield Layout(cp=cp, tp=tp, pp=pp), "fsdp" if "fsdp" in limits.shardings else limits.shardings[0]
        return
    for sharding in limits.shardings:
        if sharding in ("ddp", "zero1"):
            if sharding == "ddp" or tp * pp == 1:
                yield Layout(dp_replicate=data, cp=cp, tp=tp, pp=pp), sharding
            continue
        yield Layout(dp_shard=data, cp=cp, tp=tp, pp=pp), sharding
        inside = max(1, cluster.domain // (tp * cp))
        if sharding == "fsdp" and 1 < inside < data and data % inside == 0:
            yield Layout(dp_replicate=data // inside, dp_shard=inside, cp=cp, tp=tp, pp=pp), sharding


def _min_state_bytes(work: Work, layout: Layout, sharding: Sharding, limits: Limits) -> float:
    """Return a lower bound of the memory of a plan with this sharding: the states on the average stage."""
    parameters = work.model.layers * work.model.layer_parameters / (layout.tp * layout.pp)
    shards = layout.data_degree if sharding == "zero1" else layout.dp_shard
    return state_bytes(parameters, shards * layout.cp, sharding, limits.states)


@dataclass(frozen=True)
class _Shape:
    """A plan without its layout and sharding."""

    micro_batch: int
    checkpointing: Checkpointing
    schedule: PipelineSchedule
    virtual: int
    sequence_parallel: bool

    def __call__(self, layout: Layout, sharding: Sharding) -> Plan:
        return Plan(
            layout,
            self.micro_batch,
            sharding,
            self.checkpointing,
            self.schedule,
            self.virtual,
            self.sequence_parallel,
        )


def _shapes(work: Work, layout: Layout, limits: Limits) -> Iterator[_Shape]:
    no_pipeline: tuple[tuple[PipelineSchedule, int], ...] = (("1f1b", 1),)
    schedules = limits.schedules if layout.pp > 1 else no_pipeline
    for micro in [limits.micro_batch] if limits.micro_batch else _divisors(work.global_batch):
        if micro > max(limits.max_micro_batch, limits.micro_batch) or micro * layout.data_degree > work.global_batch:
            break
        count = -(-work.global_batch // (micro * layout.data_degree))
        for schedule, virtual in schedules:
            if layout.pp > 1 and (count < layout.pp or layout.pp * virtual > work.model.layers):
                continue
            if virtual > 1 and schedule != "zbv" and count % layout.pp:
                continue
            for checkpointing in limits.checkpointing:
                is_given = len(limits.checkpointing) == 1
                if checkpointing != "selective" or is_given or not (work.flash or schedule in _NO_SELECTIVE):
                    yield _Shape(micro, checkpointing, schedule, virtual, limits.sequence_parallel)


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]
