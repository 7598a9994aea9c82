"""When a standstill is a hang, and which rank stands out. Pure: ages come from the ranks' own nodes, no clock here."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from regroup.workers.contract.messages import Phase, RankActivity

_SETTLED_VISITS = 3
"""A phase that was left so often has a usual time."""
_PATIENT = frozenset({Phase.BOOT, Phase.JOIN, Phase.BUILD, Phase.RESTORE, Phase.CHECKPOINT})
"""Phases that come once, or wait for storage: their past says little."""
_PATIENCE_S = 1800.0
_FIRST_FACTOR, _FIRST_FLOOR_S = 5.0, 60.0
_IN_STEP = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.SNAPSHOT, Phase.VALIDATION})
"""The first step of a generation takes no longer than that of the one before, which may have compiled."""
_WAITS_IN = ("/torch/distributed/", "/torch/autograd/graph.py", "/torch/cuda/streams.py")
"""Whoever is here and moves no further waits for other ranks."""
_SILENT = "does not answer"


@dataclass(frozen=True)
class HangLimit:
    """How long no rank may move on: so many times what is usual, at least a floor."""

    factor: float
    floor_s: float

    def of(self, usual_s: float) -> float:
        """The bound for a phase that usually takes so long."""
        return max(self.floor_s, self.factor * usual_s)


@dataclass(frozen=True)
class HangPolicy:
    """What counts as a hang for one kind of job."""

    first_s: float
    """Bound for what there is no measure of yet."""
    after_s: float | None = None
    """Bound for everything else, taken literally; None: learned."""
    idle: HangLimit = HangLimit(3.0, 8.0)
    """For ranks that do nothing."""
    busy: HangLimit | None = HangLimit(3.0, 8.0)
    """For ranks that compute or write output without moving on; None: they are never held to hang."""
    first_may_work: bool = False
    """Before there is a measure, too, ranks that compute or write output are left alone."""


def hang_policy_for(kind: str, after_s: float | None, first_s: float | None) -> HangPolicy:
    """The rule for a workload of this kind; times that the spec gives are taken literally.

    The built-in trainer's steps are known. A training function may evaluate within a step without saying so: while it
    computes it gets more time. A script says nothing but its optimizer steps: as long as it computes or prints, nobody
    can tell it from one that works.
    """
    literal = first_s is not None
    patience_s = _PATIENCE_S if first_s is None else first_s
    match kind:
        case "builtin":
            return HangPolicy(patience_s, after_s)
        case "function":
            return HangPolicy(patience_s, after_s, busy=HangLimit(10.0, 300.0))
        case _:
            return HangPolicy(patience_s, after_s, HangLimit(10.0, 300.0), None, first_may_work=not literal)


@dataclass(frozen=True)
class Hang:
    """No rank has moved on for too long."""

    quiet_s: float
    """Since the last of them did."""
    bound_s: float
    """What it may take there."""
    phase: str
    """Where the last one that moved is."""


def find_hang(
    dwells: Mapping[int, RankActivity], ranks: Collection[int], rule: HangPolicy, firsts: Mapping[str, float]
) -> Hang | None:
    """Whether the ranks hang.

    Args:
        dwells: rank → how long it has been where it is, as its agent last said.
        ranks: those that have yet to finish. As long as one of them was not heard of, nothing is decided.
        firsts: phase → the longest that it took for the first time in earlier generations of the job.
    """
    standing = {rank: dwells[rank] for rank in ranks if rank in dwells and dwells[rank].phase != Phase.DONE}
    if not standing or any(rank not in dwells for rank in ranks):
        return None
    bounds: dict[int, float] = {}
    for rank, dwell in standing.items():
        bound_s = _exceeded(dwell, rule, firsts)
        if bound_s is None:
            return None
        bounds[rank] = bound_s
    last = min(standing, key=lambda rank: standing[rank].quiet_s)
    return Hang(standing[last].quiet_s, bounds[last], standing[last].phase)


def _exceeded(dwell: RankActivity, rule: HangPolicy, firsts: Mapping[str, float]) -> float | None:
    """The bound that a rank has passed, or None."""
    is_patient = dwell.phase in _PATIENT
    if rule.after_s is not None and dwell.visits and not is_patient:
        return rule.after_s if dwell.quiet_s > rule.after_s else None
    if is_patient or dwell.visits < _SETTLED_VISITS:
        bound_s = _first_bound_s(dwell.phase, rule, firsts)
        return bound_s if (dwell.idle_s if rule.first_may_work else dwell.quiet_s) > bound_s else None
    idle_s = rule.idle.of(dwell.usual_s)
    if dwell.idle_s > idle_s:
        return idle_s
    busy_s = rule.busy.of(dwell.usual_s) if rule.busy is not None else None
    return busy_s if busy_s is not None and dwell.quiet_s > busy_s else None


def _first_bound_s(phase: str, rule: HangPolicy, firsts: Mapping[str, float]) -> float:
    known_s = firsts.get(phase) if phase in _IN_STEP and not rule.first_may_work else None
    return rule.first_s if known_s is None else min(rule.first_s, max(_FIRST_FLOOR_S, _FIRST_FACTOR * known_s))


def find_outlier_ranks(
    dwells: Mapping[int, RankActivity],
    stacks: Mapping[int, str],
    done: Collection[int] = (),
    missing: Collection[int] = (),
) -> tuple[int, ...]:
    """The ranks that the others seem to wait for, by the strongest sign that tells some from the rest; else nobody.

    Signs: not to have ended while most have (`done`); a process that cannot answer; an earlier step; not being in a
    collective while others are; not having come to one that others are in (`missing`); an earlier phase of the step.
    """
    order = [phase.value for phase in Phase]
    standing = {rank: dwell for rank, dwell in dwells.items() if dwell.phase != Phase.DONE and rank not in done}
    if len(standing) <= len(dwells) - len(standing):
        return tuple(sorted(standing))
    silent = {rank for rank in standing if _SILENT in stacks.get(rank, "").partition("\n")[0]}
    newest = max((dwell.step for dwell in standing.values()), default=0)
    behind = {rank for rank, dwell in standing.items() if dwell.step < newest}
    apart = {rank for rank in standing if rank in stacks and not _in_collective(stacks[rank])}
    latest = max((order.index(dwell.phase) for dwell in standing.values()), default=0)
    earlier = {rank for rank, dwell in standing.items() if order.index(dwell.phase) < latest}
    for found in (silent, behind, apart, standing.keys() & set(missing), earlier):
        if found and len(found) < len(standing):
            return tuple(sorted(found))
    return ()


def _in_collective(stack: str) -> bool:
    """Whether the main thread, which faulthandler writes last, waits for other ranks; its newest frame is first."""
    frames = [line for line in stack.rpartition("hread 0x")[2].splitlines() if line.lstrip().startswith("File")]
    return any(part in frame for frame in frames[:4] for part in _WAITS_IN)


def describe_hang(
    hang: Hang, dwells: Mapping[int, RankActivity], odd: Collection[int], stacks: Mapping[int, str]
) -> str:
    """One sentence for people: how long, where, and who stands out."""
    text = f"no rank moved on for {hang.quiet_s:.0f} s, more than the {hang.bound_s:.3g} s allowed in {hang.phase}"
    if not odd:
        return text
    first = min(odd)
    names = f"rank {first}" if len(odd) == 1 else f"ranks {', '.join(map(str, sorted(odd)))}"
    told = f"; {names} stands out" if len(odd) == 1 else f"; {names} stand out"
    where = f"{told}: step {dwells[first].step}, {dwells[first].phase}"
    line = stacks.get(first, "").partition("\n")[0]
    return f"{text}{where}, {line}" if _SILENT in line else f"{text}{where}"
