"""View of a job for the watch screen: a value that events update. Pure: no clock, no client, no terminal."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.api.live.formatting import duration, size_text

INCIDENT_PHASES = (
    ("seen", "seen_s"),
    ("dead", "dead_s"),
    ("formed", "formed_s"),
    ("restored", "restored_s"),
    ("first step", "first_step_s"),
)
"""Phases of an incident on the screen: label, and key of the time."""

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
_NOT_TRAINING = frozenset({"PLACING", "STARTING", "RECOVERING", "RESIZING"})
_RATE_STEPS = 20


@dataclass(frozen=True)
class Rank:
    """One rank of the view."""

    rank: int
    node: str
    """Name of the rank's node."""
    phase: str = "waiting"
    is_alive: bool | None = None
    """None if the generation was not formed yet."""


@dataclass(frozen=True)
class Incident:
    """An incident with its times in Unix seconds, which are added as they happen."""

    id: str
    cause: str
    rank: int | None
    at_step: int
    times: Mapping[str, float]
    generation: int = 0
    recovery_action: str = ""
    steps_lost: int | None = None

    def elapsed(self, key: str) -> float | None:
        """Return the seconds from the fault to the phase `key`. If the fault's time is unknown, from its detection."""
        start = self.times.get("fault_s", self.times.get("seen_s"))
        then = self.times.get(key)
        return None if start is None or then is None else max(0.0, then - start)

    @property
    def title(self) -> str:
        """Cause, rank and step of the incident."""
        who = "" if self.rank is None or f"rank {self.rank}" in self.cause else f" of rank {self.rank}"
        return f"{self.cause}{who} after step {self.at_step}"

    @property
    def is_settled(self) -> bool:
        """True if all ranks are dead and their reports were received, so that the cause is final."""
        return not self.times.keys() <= {"fault_s", "seen_s"}

    @property
    def is_over(self) -> bool:
        """True if training resumed, or the job ended."""
        return "first_step_s" in self.times or "ended_s" in self.times

    def summary(self) -> str:
        """Return e.g. `recovered in 0.8 s, 0 steps lost`, or the current phase."""
        back = self.elapsed("first_step_s")
        if back is not None:
            return f"recovered in {duration(back)}, {steps_lost_text(self.steps_lost)}"
        if self.recovery_action == "fail":
            return "not recovered"
        if "ended_s" in self.times:
            return ended_text(self.elapsed("formed_s"))
        done = [word for word, key in INCIDENT_PHASES if key in self.times]
        return f"{done[-1]}, recovering" if done else "recovering"


@dataclass(frozen=True)
class Step:
    """The values of a committed step that the screen needs."""

    step: int
    generation: int
    time_s: float
    loss: float | None
    tokens: int | None
    validation_loss: float | None = None
    mfu: float | None = None


@dataclass(frozen=True)
class JobView:
    """The state of a job at one time, as the screen shows it."""

    job_id: str
    name: str
    steps_total: int | None
    """Number of steps in total; None for a script that does not report it."""
    workload: str = ""
    """Kind of the workload, e.g. `script`; empty if unknown."""
    device: str = ""
    """Kind of the devices, `cpu` or `cuda`; empty if unknown."""
    is_step_estimated: bool = False
    """True if steps were repeated and it is unknown how many, so that `step` counts some of them twice."""
    state: str = "QUEUED"
    reason: str = ""
    message: str = ""
    error: Mapping[str, Any] | None = None
    activity: str = ""
    """Current activity of the start, e.g. `data 40 %`."""
    save: str = ""
    """Progress of the checkpoint that is being written; empty if there is none."""
    generation: int = 0
    layout: Mapping[str, int] = field(default_factory=dict[str, int])
    ranks: tuple[Rank, ...] = ()
    incidents: tuple[Incident, ...] = ()
    steps: tuple[Step, ...] = ()
    """Committed steps in order. Rows of later generations replace earlier ones."""
    checkpoint_step: int | None = None
    prediction: Mapping[str, Any] | None = None
    """Prediction for the newest generation, and the measured values."""

    @property
    def is_over(self) -> bool:
        """True if the job is in a terminal state."""
        return self.state in TERMINAL

    @property
    def step(self) -> int:
        """Number of committed steps."""
        return self.steps[-1].step if self.steps else 0

    @property
    def loss(self) -> float | None:
        """Loss of the newest step."""
        return self.steps[-1].loss if self.steps else None

    @property
    def validation_loss(self) -> float | None:
        """Newest held-out loss."""
        return next((s.validation_loss for s in reversed(self.steps) if s.validation_loss is not None), None)

    @property
    def tokens_per_s(self) -> float | None:
        """Rate over the last steps of the newest generation, so that recoveries do not reduce it."""
        recent = self._recent
        tokens = [s.tokens for s in recent[1:] if s.tokens is not None]
        if not tokens or recent[-1].time_s <= recent[0].time_s:
            return None
        return sum(tokens) / (recent[-1].time_s - recent[0].time_s)

    @property
    def mfu(self) -> float | None:
        """Median model FLOPs utilisation of the last steps; None on CPUs, which have no stated peak."""
        recent = [s.mfu for s in self._recent if s.mfu is not None]
        return statistics.median(recent) if recent and self.device == "cuda" else None

    @property
    def has_loss(self) -> bool:
        """True if a step reported a finite loss."""
        return any(s.loss is not None and math.isfinite(s.loss) for s in self.steps)

    @property
    def size(self) -> str:
        """Describe the ranks: the degrees of the layout, or only their number for code that divides its work itself."""
        return size_text(dict(self.layout), self.workload)

    @property
    def _recent(self) -> list[Step]:
        """Last steps of the newest generation, so that recoveries do not count."""
        return [s for s in self.steps[-_RATE_STEPS:] if s.generation == self.steps[-1].generation]

    @property
    def eta_s(self) -> float | None:
        """Time to the last step at the current rate, in seconds; None if unknown, or if the job has ended."""
        recent = self._recent
        if self.is_over or len(recent) < 2 or self.steps_total is None or self.is_step_estimated:
            return None
        return max(0, self.steps_total - self.step) * (recent[-1].time_s - recent[0].time_s) / (len(recent) - 1)


def steps_lost_text(count: int | None) -> str:
    """Format the number of lost steps: `1 step lost`. None, which only scripts have, is unknown."""
    return "steps lost unknown" if count is None else f"{count} step{'' if count == 1 else 's'} lost"


def ended_text(formed_s: float | None) -> str:
    """Describe an incident whose job ended before another step.

    Args:
        formed_s: Time from the fault until the ranks were formed again; None if they were not.
    """
    return (
        "not recovered before the job ended"
        if formed_s is None
        else f"restarted in {duration(formed_s)}, no step since"
    )


def step_text(step: int, total: int | None, *, is_estimated: bool = False) -> str:
    """Format a step: `step 3/10`, or `step 3` if the total is unknown.

    Args:
        is_estimated: it is unknown how many of the steps were repeated. Then the number is not compared with the total.
    """
    if is_estimated:
        return f"{step} steps, some repeated" + ("" if total is None else f" (of {total})")
    return f"step {step}" if total is None else f"step {step}/{total}"


def initial_view(name: str, steps_total: int, nodes: list[str], ranks_per_node: int, activity: str) -> JobView:
    """Return the view of a job before the cluster exists, with all ranks waiting."""
    ranks = [Rank(n * ranks_per_node + i, node) for n, node in enumerate(nodes) for i in range(ranks_per_node)]
    return JobView("", name, steps_total, state="", ranks=tuple(ranks), activity=activity)


def apply_event(view: JobView, event: Mapping[str, Any]) -> JobView:
    """Return the view after an event `{type, generation, time_s, data}`. Unknown types do not change it."""
    data: Mapping[str, Any] = event.get("data") or {}
    match event.get("type"):
        case "state":
            return _state(view, data)
        case "generation":
            return _generation(view, data)
        case "incident":
            return _incident(view, data)
        case "resumed":  # a script's own checkpoint was older than its last step
            kept = tuple(s for s in view.steps if s.step <= int(data["step"]))
            return replace(view, steps=kept, is_step_estimated=is_count_unknown(event))
        case "checkpoint":
            return replace(view, checkpoint_step=int(data["step"]))
        case "phase":
            fraction = data.get("fraction")
            done = "" if fraction is None else f" {fraction:.0%}"
            return replace(view, activity=f"{data.get('message') or data.get('phase', '')}{done}")
        case _:
            return view


def apply_steps(view: JobView, rows: Sequence[Mapping[str, Any]]) -> JobView:
    """Return the view after committed steps. Steps of a later generation replace earlier ones."""
    if not rows:
        return view
    steps = list(view.steps)
    for row in rows:
        step = _step(row)
        if steps and step.step <= steps[-1].step:
            if step.generation < steps[-1].generation:
                continue
            steps = [kept for kept in steps if kept.step < step.step]
        steps.append(step)
    ranks, newest = view.ranks, steps[-1].generation
    dying = any(i.generation >= newest and not i.is_over for i in view.incidents)
    if newest >= view.generation and not dying and any(not r.is_alive for r in ranks):
        ranks = tuple(replace(r, is_alive=True, phase="training") for r in ranks)
    return replace(view, steps=tuple(steps), ranks=ranks, activity="")


def is_count_unknown(resumed: Mapping[str, Any]) -> bool:
    """Return True if a script's restart lost the count of its steps.

    Args:
        resumed: an event `resumed`. The one of generation 1 is a start: nothing was repeated.
    """
    return not (resumed.get("data") or {}).get("has_step_count", True) and int(resumed.get("generation") or 0) > 1


def _step(row: Mapping[str, Any]) -> Step:
    loss, tokens = row.get("loss"), row.get("tokens")
    if loss is None and tokens is not None:
        loss = math.nan  # code that counts tokens always reports a loss, so it was not finite
    return Step(
        step=int(row["step"]),
        generation=int(row["generation"]),
        time_s=float(row["time_s"]),
        loss=None if loss is None else float(loss),
        tokens=tokens,
        validation_loss=row.get("validation_loss"),
        mfu=(row.get("extra") or {}).get("mfu"),
    )


def apply_job(view: JobView, job: Mapping[str, Any]) -> JobView:
    """Return the view with data that only the job contains: its id, its activity and save, phases of ranks."""
    phase = job.get("phase")
    if phase and job.get("state") in _NOT_TRAINING:
        view = apply_event(view, {"type": "phase", "data": phase})
    if job.get("state") == "QUEUED":
        waits = (each for each in job.get("conditions") or () if not each["status"] or each["type"] == "PlatformFault")
        unmet = [each["message"] or each["reason"] for each in waits]
        view = replace(view, activity=unmet[0] if unmet else "")
    phases: Mapping[str, Any] = job.get("rank_phases") or {}
    if not view.ranks and not view.is_over:  # the event of a large generation does not list its ranks
        view = replace(view, ranks=_placed(job.get("placement") or ()))
    ranks = tuple(
        replace(r, is_alive=True, phase=str(phases[str(r.rank)][1]))
        if str(r.rank) in phases and r.is_alive is not False
        else r
        for r in view.ranks
    )
    ranks, prediction = view.ranks if view.is_over else ranks, job.get("prediction")
    spec: Mapping[str, Any] = job.get("spec") or {}
    return replace(
        view,
        save=str((job.get("save") or {}).get("message", "")),
        job_id=str(job["id"]),
        name=str(job["name"]),
        ranks=ranks,
        prediction=prediction,
        workload=str((spec.get("workload") or {}).get("kind") or view.workload),
        device=str((spec.get("resources") or {}).get("device") or view.device),
    )


def _state(view: JobView, data: Mapping[str, Any]) -> JobView:
    state = str(data["to"])
    ranks = view.ranks
    if state == "SUCCEEDED":
        ranks = tuple(replace(r, is_alive=None, phase="done") for r in ranks)
    elif state in TERMINAL or state == "QUEUED":
        ranks = tuple(replace(r, is_alive=None, phase="ended" if state in TERMINAL else "waiting") for r in ranks)
    return replace(
        view,
        state=state,
        reason=str(data.get("reason") or ""),
        message=str(data.get("message") or ""),
        error=data.get("error") or view.error,
        ranks=ranks,
        activity="" if state in TERMINAL else view.activity,
    )


def _generation(view: JobView, data: Mapping[str, Any]) -> JobView:
    ranks = _placed(data.get("ranks") or ())
    start = int(data.get("start_step") or 0)
    return replace(
        view,
        generation=int(data["number"]),
        layout=data.get("layout") or {},
        ranks=ranks or view.ranks,
        steps=tuple(s for s in view.steps if s.step <= start or s.generation >= int(data["number"])),
    )


def _placed(places: Iterable[Mapping[str, Any]]) -> tuple[Rank, ...]:
    return tuple(
        Rank(int(r["rank"]), str(r.get("node_name") or r.get("node_id") or "?"), phase="joining") for r in places
    )


def _incident(view: JobView, data: Mapping[str, Any]) -> JobView:
    incident = Incident(
        id=str(data["id"]),
        cause=str(data.get("cause") or data.get("reason") or "?"),
        rank=data.get("rank"),
        at_step=int(data.get("at_step") or 0),
        times={key: value for key, value in (data.get("times") or {}).items() if value is not None},
        generation=int(data.get("generation") or 0),
        recovery_action=str(data.get("recovery_action") or ""),
        steps_lost=data.get("steps_lost"),
    )
    ids = [i.id for i in view.incidents]
    incidents = (
        tuple(incident if i.id == incident.id else i for i in view.incidents)
        if incident.id in ids
        else (*view.incidents, incident)
    )
    ranks = view.ranks
    if incident.generation >= view.generation and not incident.is_over:
        everyone = "dead_s" in incident.times
        ranks = tuple(
            replace(r, is_alive=False, phase="dead")
            if r.rank == incident.rank
            else replace(r, is_alive=False, phase="ended")
            if everyone
            else r
            for r in ranks
        )
    return replace(view, incidents=incidents, ranks=ranks)
