"""Which plans fit, and which of them is fastest: all are looked at, but those that cannot be among the best.

Two cuts, both safe. A sharding whose states alone exceed the device's memory fits with no micro-batch and no
recomputation, because what those add is never negative. A plan that without data parallelism's share is already slower
than what it has to beat stays so, because that share is never negative. A test compares with `cut=False`.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from regroup.service.errors import SpecError
from regroup.service.layout import Layout
from regroup.service.planner.asking import check, fits_nowhere, no_layout
from regroup.service.planner.constants import Constants
from regroup.service.planner.formulas import (
    MIXED_ADAM,
    Checkpointing,
    PipelineSchedule,
    Sharding,
    StateBytes,
    state_bytes,
)
from regroup.service.planner.memory import peak_bytes
from regroup.service.planner.plan import Cluster, Plan, Work
from regroup.service.planner.timing import StepTime, core_time, with_data

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
    most_tp: int = 0
    """0 for the devices that a link joins: beyond them tensor parallelism is not looked at."""
    most_pp: int = 0
    """0 for the layers."""
    most_cp: int = 1
    most_micro_batch: int = 64
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


def search(
    work: Work, cluster: Cluster, constants: Constants, limits: Limits | None = None, *, cut: bool = True
) -> Found:
    """The fastest plans of `work` on all devices of `cluster`.

    Raises:
        SpecError: the question makes no sense, no layout is legal, or no plan fits; the issue names what binds.
    """
    limits = limits or Limits()
    check(work, cluster)
    constants = constants.on(cluster.device)
    room_bytes = cluster.device.memory_bytes
    leaders, nearest, timed = _Leaders(limits.keep), _Nearest(), 0
    for tp, cp, pp in degrees(work, cluster, limits):
        spread = list(_spread(work, cluster, limits, tp, cp, pp))
        shapes = list(_shapes(work, spread[0][0], limits)) if spread else []
        if not shapes:
            continue
        for layout, sharding in spread:
            least = Plan(layout, 1, sharding, "full")
            nearest.take(work, cluster, least, constants, peak_bytes(work, least, constants, limits.kept))
        room = [each for each in spread if not cut or _least_states(work, *each, limits) <= room_bytes]
        for shape in shapes if room else ():
            core = core_time(work, cluster, shape(*room[0]), constants)
            timed += 1
            for layout, sharding in room:
                plan = shape(layout, sharding)
                if cut and leaders.are_ahead_of(core.step_s, kind(plan)):
                    continue
                need = peak_bytes(work, plan, constants, limits.kept)
                if need <= room_bytes:
                    leaders.take(Choice(plan, with_data(core, work, cluster, plan, constants), need))
    if not nearest.by_kind:
        most_tp = max(tp for tp in range(1, _most_tp(cluster, limits) + 1) if _splits(work, tp))
        raise SpecError([no_layout(work, cluster, most_tp, limits.most_pp or work.model.layers)])
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

    def take(self, choice: Choice) -> None:
        """Look at one that fits."""
        name = kind(choice.plan)
        champion = self.champions.get(name)
        if champion is None or choice.order < champion.order:
            self.champions[name] = choice
        if len(self.best) < self.keep or choice.order < self.best[-1].order:
            self.best = sorted([*self.best, choice], key=lambda each: each.order)[: self.keep]

    def notable(self) -> tuple[Choice, ...]:
        """Champions of kinds that are not among the best."""
        shown = {kind(each.plan) for each in self.best}
        others = (each for name, each in self.champions.items() if name not in shown)
        return tuple(sorted(others, key=lambda each: each.order))


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
        if tp > _most_tp(cluster, limits) or not _splits(work, tp):
            continue
        for cp in _divisors(cluster.gpus // tp):
            if cp > limits.most_cp or work.sequence % cp:
                continue
            for pp in _divisors(cluster.gpus // (tp * cp)):
                data = cluster.gpus // (tp * cp * pp)
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

    def __call__(self, layout: Layout, sharding: Sharding) -> Plan:
        return Plan(layout, self.micro_batch, sharding, self.checkpointing, self.schedule, self.virtual)


def _shapes(work: Work, layout: Layout, limits: Limits) -> Iterator[_Shape]:
    alone: tuple[tuple[PipelineSchedule, int], ...] = (("1f1b", 1),)
    schedules = limits.schedules if layout.pp > 1 else alone
    for micro in _divisors(work.global_batch):
        if micro > limits.most_micro_batch or micro * layout.data_degree > work.global_batch:
            break
        count = -(-work.global_batch // (micro * layout.data_degree))
        for schedule, virtual in schedules:
            if layout.pp > 1 and (count < layout.pp or layout.pp * virtual > work.model.layers):
                continue
            if virtual > 1 and schedule != "zbv" and count % layout.pp:
                continue
            for checkpointing in _CHECKPOINTING:
                if not (checkpointing == "selective" and (work.flash or schedule in _NO_SELECTIVE)):
                    yield _Shape(micro, checkpointing, schedule, virtual)


def _divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return small + [number // each for each in reversed(small) if each * each != number]
