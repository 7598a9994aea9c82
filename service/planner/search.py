"""Which plans fit, and which of them is fastest: all are looked at, but those that cannot be among the best.

Two cuts, both safe. A sharding whose states alone exceed the device's memory fits with no micro-batch and no
recomputation, because what those add is never negative. A plan that without data parallelism's share is already slower
than what it has to beat stays so, because that share is never negative. A test compares with `cut=False`.
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
from regroup.service.planner.time_model import StepTime, core_time, measured_as, with_data
from regroup.service.planner.types import Cluster, Plan, Work
from regroup.service.planner.validation import check, fits_nowhere, no_layout, none_runs

_CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "selective", "full")
_SCHEDULES: tuple[tuple[PipelineSchedule, int], ...] = (
    ("1f1b", 1), ("interleaved_1f1b", 2), ("interleaved_zero_bubble", 2), ("zbv", 2),
)  # fmt: skip
"""GPipe takes as long as 1F1B and never less memory: it is not looked at."""
_NO_SELECTIVE = ("interleaved_zero_bubble", "zbv")
"""Backward is split in two there, and torch 2.13 runs what selective checkpointing keeps through it twice."""


@dataclass(frozen=True)
class Limits:
    """What may be chosen from."""

    shardings: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "fsdp")
    schedules: tuple[tuple[PipelineSchedule, int], ...] = _SCHEDULES
    checkpointing: tuple[Checkpointing, ...] = _CHECKPOINTING
    most_tp: int = 0
    """0 for the devices that a link joins: beyond them tensor parallelism is not looked at."""
    most_pp: int = 0
    """0 for the layers."""
    most_cp: int = 1
    most_micro_batch: int = 64
    tp: int = 0
    """This one and no other; 0 for any. Likewise `pp` and `micro_batch`."""
    pp: int = 0
    micro_batch: int = 0
    sequence_parallel: bool = True
    keep: int = 5
    """How many of the best."""
    kept: StateBytes = MIXED_ADAM


@dataclass(frozen=True)
class Choice:
    """One plan, and what it comes to."""

    plan: Plan
    time: StepTime
    peak_bytes: float

    @property
    def order(self) -> tuple[float, float, str]:
        """Faster first, then what leaves more room, then by name: one order, whatever was looked at first."""
        return (self.time.step_s, self.peak_bytes, repr(self.plan))


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    best: tuple[Choice, ...]
    notable: tuple[Choice, ...]
    """The fastest that fits of each kind of layout that is not among the best."""
    too_large: tuple[Choice, ...]
    """Of kinds that fit nowhere, what needs least."""
    timed: int
    """Plans whose time was computed."""


Refuses = Callable[[Plan], Sequence[str]]
"""Why a plan is not to be had, whatever its time and memory; nothing if it is."""


def search(
    work: Work,
    cluster: Cluster,
    constants: Constants,
    limits: Limits | None = None,
    *,
    cut: bool = True,
    refuses: Refuses = lambda _: (),
) -> Found:
    """The fastest plans of `work` on all devices of `cluster`.

    Args:
        refuses: asked of plans that would be among the best.

    Raises:
        SpecError: the question makes no sense, no layout is legal, or no plan fits; the issue names what binds.
    """
    limits = limits or Limits()
    check(work, cluster)
    constants = constants.on(cluster.device)
    room_bytes = cluster.device.memory_bytes
    leaders, nearest, timed = _Leaders(limits.keep), _Nearest(), 0
    refused: tuple[float, Plan, Sequence[str]] | None = None
    for tp, cp, pp in degrees(work, cluster, limits):
        spread = list(_spread(work, cluster, limits, tp, cp, pp))
        shapes = list(_shapes(work, spread[0][0], limits)) if spread else []
        if not shapes:
            continue
        for layout, sharding in spread:
            most = "full" if "full" in limits.checkpointing else limits.checkpointing[-1]
            least = Plan(layout, limits.micro_batch or 1, sharding, most, sequence_parallel=limits.sequence_parallel)
            nearest.take(work, cluster, least, constants, peak_bytes(work, least, constants, limits.kept))
        room = [each for each in spread if not cut or _least_states(work, *each, limits) <= room_bytes]
        for shape in shapes if room else ():
            cores = dict[str, StepTime]()
            timed += 1
            for layout, sharding in room:
                plan = shape(layout, sharding)
                measured = measured_as(cluster, plan)
                core = cores[measured] = cores.get(measured) or core_time(work, cluster, plan, constants)
                if cut and leaders.are_ahead_of(core.step_s, kind(plan)):
                    continue
                need = peak_bytes(work, plan, constants, limits.kept)
                if need > room_bytes:
                    continue
                choice = Choice(plan, with_data(core, work, cluster, plan, constants), need)
                if not leaders.want(choice):
                    continue
                if why := refuses(plan):
                    refused = min(refused or (math.inf, plan, why), (choice.time.step_s, plan, why), key=lambda x: x[0])
                else:
                    leaders.take(choice)
    if not nearest.by_kind:
        most_tp = max(tp for tp in range(1, _most_tp(cluster, limits) + 1) if _splits(work, tp))
        raise SpecError([no_layout(work, cluster, most_tp, limits.most_pp or work.model.layers)])
    if not leaders.best and refused:
        raise SpecError([none_runs(cluster, refused[1], refused[2])])
    if not leaders.best:
        least = min(nearest.by_kind.values(), key=lambda each: each.peak_bytes)
        raise SpecError([fits_nowhere(work, cluster, least.plan, least.peak_bytes, limits.kept)])
    return Found(tuple(leaders.best), leaders.notable(), nearest.too_large(leaders.champions), timed)


@dataclass
class _Leaders:
    """The best so far, of all and of each kind."""

    keep: int
    best: list[Choice] = field(default_factory=list[Choice])
    champions: dict[str, Choice] = field(default_factory=dict[str, Choice])

    def are_ahead_of(self, at_least_s: float, name: str) -> bool:
        """A plan of this kind that takes so long at least changes nothing."""
        champion = self.champions.get(name)
        if champion is None or len(self.best) < self.keep:
            return False
        return at_least_s > max(champion.time.step_s, self.best[-1].time.step_s)

    def want(self, choice: Choice) -> bool:
        """It would be among the best, or the best of its kind."""
        return self._is_best_of_kind(choice) or self._is_among_best(choice)

    def take(self, choice: Choice) -> None:
        """Look at one that fits."""
        if self._is_best_of_kind(choice):
            self.champions[kind(choice.plan)] = choice
        if self._is_among_best(choice):
            self.best = sorted([*self.best, choice], key=lambda each: each.order)[: self.keep]

    def notable(self) -> tuple[Choice, ...]:
        """Champions of kinds that are not among the best."""
        shown = {kind(each.plan) for each in self.best}
        others = (each for name, each in self.champions.items() if name not in shown)
        return tuple(sorted(others, key=lambda each: each.order))

    def _is_best_of_kind(self, choice: Choice) -> bool:
        champion = self.champions.get(kind(choice.plan))
        return champion is None or choice.order < champion.order

    def _is_among_best(self, choice: Choice) -> bool:
        return len(self.best) < self.keep or choice.order < self.best[-1].order


@dataclass
class _Nearest:
    """Of each kind what needs least memory."""

    by_kind: dict[str, Choice] = field(default_factory=dict[str, Choice])

    def take(self, work: Work, cluster: Cluster, plan: Plan, constants: Constants, need: float) -> None:
        """Look at one, whether it fits or not."""
        known = self.by_kind.get(kind(plan))
        if known is None or need < known.peak_bytes:
            self.by_kind[kind(plan)] = Choice(plan, core_time(work, cluster, plan, constants), need)

    def too_large(self, fitting: Container[str]) -> tuple[Choice, ...]:
        """Those of kinds of which nothing fits, the smallest first."""
        large = (each for name, each in self.by_kind.items() if name not in fitting)
        return tuple(sorted(large, key=lambda each: each.peak_bytes))


def kind(plan: Plan) -> str:
    """What people call a layout: how data is spread, and which other degrees it uses."""
    layout = plan.layout
    data = "hsdp" if plan.sharding == "fsdp" and layout.dp_replicate > 1 else plan.sharding
    parts = [data] if layout.data_degree > 1 else []
    parts += [name for name in ("tp", "cp", "pp") if getattr(layout, name) > 1]
    return "+".join(parts) or "one device"


def degrees(work: Work, cluster: Cluster, limits: Limits) -> Iterator[tuple[int, int, int]]:
    """Legal tensor, context and pipeline degrees: heads, feed-forward and vocabulary divide, a stage has a layer."""
    model = work.model
    for tp in _divisors(cluster.gpus):
        if tp > _most_tp(cluster, limits) or not _splits(work, tp) or limits.tp not in (0, tp):
            continue
        for cp in _divisors(cluster.gpus // tp):
            if cp > limits.most_cp or work.sequence % cp:
                continue
            for pp in _divisors(cluster.gpus // (tp * cp)):
                data = cluster.gpus // (tp * cp * pp)
                if limits.pp not in (0, pp):
                    continue
                if pp <= (limits.most_pp or model.layers) and data <= work.global_batch:
                    yield tp, cp, pp


def _most_tp(cluster: Cluster, limits: Limits) -> int:
    return limits.most_tp or min(cluster.domain, cluster.gpus)


def _splits(work: Work, tp: int) -> bool:
    model = work.model
    return not (model.heads % tp or model.groups % tp or model.inner % tp)


def _spread(
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


def _least_states(work: Work, layout: Layout, sharding: Sharding, limits: Limits) -> float:
    """Bytes below which no plan of this sharding stays, on the average stage."""
    held = work.model.layers * work.model.layer_parameters / (layout.tp * layout.pp)
    shards = layout.data_degree if sharding == "zero1" else layout.dp_shard
    return state_bytes(held, shards * layout.cp, sharding, limits.kept)


@dataclass(frozen=True)
class _Shape:
    """All of a plan but how data is spread."""

    micro_batch: int
    checkpointing: Checkpointing
    schedule: PipelineSchedule
    virtual: int
    sequence_parallel: bool

    def __call__(self, layout: Layout, sharding: Sharding) -> Plan:
        split = self.sequence_parallel
        return Plan(layout, self.micro_batch, sharding, self.checkpointing, self.schedule, self.virtual, split)


def _shapes(work: Work, layout: Layout, limits: Limits) -> Iterator[_Shape]:
    alone: tuple[tuple[PipelineSchedule, int], ...] = (("1f1b", 1),)
    schedules = limits.schedules if layout.pp > 1 else alone
    for micro in [limits.micro_batch] if limits.micro_batch else _divisors(work.global_batch):
        if micro > max(limits.most_micro_batch, limits.micro_batch) or micro * layout.data_degree > work.global_batch:
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
