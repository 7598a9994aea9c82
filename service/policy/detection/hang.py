"""Detect hangs and the ranks that cause them. Pure: the ages come from the ranks' own nodes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from regroup.workers.contract.messages import Phase
from regroup.workers.contract.rank_activity import RankActivity

_SETTLED_VISITS = 3
"""Number of completed visits after which a phase has a usual duration."""
_PATIENT = frozenset({Phase.BOOT, Phase.JOIN, Phase.BUILD, Phase.RESTORE, Phase.CHECKPOINT})
"""Phases that occur once or wait for storage: their past durations predict little."""
_PATIENCE_S = 1800.0
_FIRST_FACTOR, _FIRST_FLOOR_S = 5.0, 60.0
_IN_STEP = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.SNAPSHOT, Phase.VALIDATION})
"""Phases of a step. The first step of a generation takes no longer than that of the last one, which may have
compiled."""
_WAITS_IN = ("/torch/distributed/", "/torch/autograd/graph.py", "/torch/cuda/streams.py")
"""Source files in which a rank without progress waits for other ranks."""
_SILENT = "does not answer"


@dataclass(frozen=True)
class HangLimit:
    """Time without progress that is allowed: a multiple of the usual time, at least a floor."""

    factor: float
    floor_s: float

    def of(self, usual_s: float) -> float:
        """Return the limit for a phase with this usual duration."""
        return max(self.floor_s, self.factor * usual_s)


@dataclass(frozen=True)
class HangPolicy:
    """Limits for one kind of workload."""

    first_s: float
    """Limit while no usual duration is known."""
    after_s: float | None = None
    """Limit for everything else, from the spec; None if learned."""
    idle: HangLimit = HangLimit(3.0, 8.0)
    """Limit for ranks without CPU use and output."""
    busy: HangLimit | None = HangLimit(3.0, 8.0)
    """Limit for ranks that compute or write output without progress; None for no limit."""
    first_may_work: bool = False
    """True if ranks that compute or write output are also exempt while no usual duration is known."""


def hang_policy_for(kind: str, after_s: float | None, first_s: float | None) -> HangPolicy:
    """Return the policy for a workload of this kind. Times from the spec apply literally.

    The built-in trainer's steps are observable. A training function may evaluate within a step without a report, so it
    gets more time while it computes. A script reports only its optimizer steps: while it computes or prints, a hang is
    indistinguishable from work.
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
    """No rank has made progress for too long."""

    stalled_s: float
    """Time since the last progress of any rank."""
    bound_s: float
    """Limit for that phase."""
    phase: str
    """Phase of the rank with the latest progress."""


def find_hang(
    activities: Mapping[int, RankActivity], ranks: Iterable[int], rule: HangPolicy, firsts: Mapping[str, float]
) -> Hang | None:
    """Return the hang of the ranks, or None. While training progresses, only the first ranks are read.

    Args:
        activities: rank → its activity, as its agent last reported it.
        ranks: ranks that have not finished. While one of them has no report, the result is None.
        firsts: phase → its longest first duration in earlier generations of the job.
    """
    standing: list[tuple[RankActivity, float]] = []
    for rank in ranks:
        activity = activities.get(rank)
        if activity is None:
            return None
        if activity.phase == Phase.DONE:
            continue
        bound_s = _exceeded(activity, rule, firsts)
        if bound_s is None:
            return None
        standing.append((activity, bound_s))
    if not standing:
        return None
    last, bound_s = min(standing, key=lambda each: each[0].stalled_s)
    return Hang(last.stalled_s, bound_s, last.phase)


def _exceeded(activity: RankActivity, rule: HangPolicy, firsts: Mapping[str, float]) -> float | None:
    """Return the limit that a rank has exceeded, or None."""
    is_patient = activity.phase in _PATIENT
    if rule.after_s is not None and activity.visits and not is_patient:
        return rule.after_s if activity.stalled_s > rule.after_s else None
    if is_patient or activity.visits < _SETTLED_VISITS:
        bound_s = _first_bound_s(activity.phase, rule, firsts)
        return bound_s if (activity.idle_s if rule.first_may_work else activity.stalled_s) > bound_s else None
    idle_s = rule.idle.of(activity.usual_s)
    if activity.idle_s > idle_s:
        return idle_s
    busy_s = rule.busy.of(activity.usual_s) if rule.busy is not None else None
    return busy_s if busy_s is not None and activity.stalled_s > busy_s else None


def _first_bound_s(phase: str, rule: HangPolicy, firsts: Mapping[str, float]) -> float:
    earlier_s = firsts.get(phase) if phase in _IN_STEP and not rule.first_may_work else None
    return rule.first_s if earlier_s is None else min(rule.first_s, max(_FIRST_FLOOR_S, _FIRST_FACTOR * earlier_s))


def find_outlier_ranks(
    activities: Mapping[int, RankActivity],
    stacks: Mapping[int, str],
    done: Collection[int] = (),
    missing: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the ranks that the others seem to wait for, by the strongest sign that separates some ranks from the rest.

    The signs, the strongest first:

    - The rank has not finished while most ranks have (`done`).
    - The process does not answer.
    - The rank is at an earlier step.
    - The rank is not in a collective while others are.
    - The rank is missing in a collective that others entered (`missing`).
    - The rank is in an earlier phase of the step.
    """
    order = [phase.value for phase in Phase]
    standing = {
        rank: activity for rank, activity in activities.items() if activity.phase != Phase.DONE and rank not in done
    }
    if len(standing) <= len(activities) - len(standing):
        return tuple(sorted(standing))
    silent = {rank for rank in standing if _SILENT in stacks.get(rank, "").partition("\n")[0]}
    newest = max((activity.step for activity in standing.values()), default=0)
    behind = {rank for rank, activity in standing.items() if activity.step < newest}
    apart = {rank for rank in standing if rank in stacks and not _in_collective(stacks[rank])}
    latest = max((order.index(activity.phase) for activity in standing.values()), default=0)
    earlier = {rank for rank, activity in standing.items() if order.index(activity.phase) < latest}
    for found in (silent, behind, apart, standing.keys() & set(missing), earlier):
        if found and len(found) < len(standing):
            return tuple(sorted(found))
    return ()


def _in_collective(stack: str) -> bool:
    """Return True if the main thread waits for other ranks. faulthandler writes that thread last, with the newest frame
    first."""
    frames = [line for line in stack.rpartition("hread 0x")[2].splitlines() if line.lstrip().startswith("File")]
    return any(part in frame for frame in frames[:4] for part in _WAITS_IN)


def describe_hang(
    hang: Hang, activities: Mapping[int, RankActivity], outliers: Collection[int], stacks: Mapping[int, str]
) -> str:
    """Return one sentence for people: duration, phase and outlier ranks."""
    text = (
        f"no rank made progress for {hang.stalled_s:.0f} s, more than the {hang.bound_s:.3g} s allowed in {hang.phase}"
    )
    if not outliers:
        return text
    first = min(outliers)
    names = f"rank {first}" if len(outliers) == 1 else f"ranks {', '.join(map(str, sorted(outliers)))}"
    suffix = f"; {names} stands out" if len(outliers) == 1 else f"; {names} stand out"
    where = f"{suffix}: step {activities[first].step}, {activities[first].phase}"
    line = stacks.get(first, "").partition("\n")[0]
    return f"{text}{where}, {line}" if _SILENT in line else f"{text}{where}"
