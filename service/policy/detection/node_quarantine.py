"""Which nodes are trusted with ranks, from what has happened on them: a score that decays, and a quarantine. Pure.

Each fault adds its weight to the score of its node, which halves with every half-life in which the node is used. A
fault that takes the score to `QUARANTINE_AT` puts the node into quarantine: nothing new is placed there until a
back-off has passed, which doubles with each recent quarantine. Ranks that run there run on. An admin may cordon a node
for as long as he likes, and uncordon it, which forgives it all that happened before.

A node that fell silent and was given up without proof that its ranks are dead is closed until somebody there says that
nothing of the job is left, and for `FENCE_S` at most: by then what ran there has ended itself, or the cluster has lost
the node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from regroup.service.domain.states import Reason

QUARANTINE_AT = 2.5
_ONCE_S = 30.0
"""What follows a fault within this time is taken for its consequence: a node that hosts four jobs fails once."""
MEMORY_S = 7 * 24 * 3600.0
"""Faults and quarantines that are older count for nothing, and need not be kept."""
FENCE_S = 60.0
_LONGEST_S = 24 * 3600.0
_SHOWN = 200
"""Characters of a fault's message in an explanation."""


class NodeEventKind(StrEnum):
    """What can happen to a node, as far as its health goes."""

    NODE_LOST = "node_lost"
    """The cluster lost it while a job had ranks there."""
    AGENT_LOST = "agent_lost"
    """A job's agent there died or fell silent."""
    SILENT = "silent"
    """It was given up though the cluster has it: ranks may run there. That an agent was lost is told beside it."""
    UNKILLABLE = "unkillable"
    """A process there outlived SIGKILL."""
    DEVICE = "device"
    """A GPU there is lost, or its memory broken, by its driver's word."""
    PREFLIGHT = "preflight"
    """It failed the check before ranks start."""
    LINK = "link"
    """Another node could not reach it, or it not the other: whose fault that is nobody can tell from one time."""
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed a rank there for want of memory."""
    BLAMED = "blamed"
    """Evidence of an incident names a rank there."""
    CLEARED = "cleared"
    """Nothing is left there of the job that it was silent to."""
    CORDONED = "cordoned"
    """An admin wants nothing new there."""
    UNCORDONED = "uncordoned"
    """An admin trusts it again."""


WEIGHTS: Mapping[NodeEventKind, float] = {
    NodeEventKind.NODE_LOST: 1.0,
    NodeEventKind.AGENT_LOST: 1.0,
    NodeEventKind.SILENT: 1.0,
    NodeEventKind.UNKILLABLE: QUARANTINE_AT,
    NodeEventKind.DEVICE: QUARANTINE_AT,
    NodeEventKind.PREFLIGHT: QUARANTINE_AT,
    NodeEventKind.LINK: 1.5,
    NodeEventKind.OUT_OF_MEMORY: 0.5,
    NodeEventKind.BLAMED: 0.5,
}
"""What is a fault, and how much each counts: what proves that the node is at fault is enough by itself."""

_ORDERS = frozenset({NodeEventKind.CORDONED, NodeEventKind.UNCORDONED})
_ONCE_A_JOB = frozenset({NodeEventKind.OUT_OF_MEMORY, NodeEventKind.BLAMED})
"""May be the job's own doing: each job is heard once, so that no job can have a node quarantined by itself."""


@dataclass(frozen=True)
class NodeEvent:
    """One thing that happened to a node."""

    node: str
    """What the node is called for good (`topology.Node.machine`)."""
    kind: NodeEventKind
    time_s: float
    """Unix seconds."""
    key: str
    """Unique: the same thing told twice happened once."""
    job_id: str = ""
    actor: str = ""
    """Who cordoned it, or trusts it again."""
    message: str = ""


@dataclass(frozen=True)
class QuarantinePolicy:
    """How soon faults are forgotten."""

    half_life_s: float
    quarantine_s: float
    """The first quarantine; 0: nodes are only scored."""


@dataclass(frozen=True)
class NodeHealth:
    """A node as its history shows it at one moment."""

    score: float = 0.0
    quarantined_until_s: float | None = None
    """None if it is not."""
    quarantines: int = 0
    """How many there were of late, this one included."""
    faults: tuple[NodeEvent, ...] = ()
    """Those that count, oldest first."""
    cordon: NodeEvent | None = None
    """An admin's."""
    fenced_until_s: float | None = None
    """What it ran when it fell silent may live until then; None if that is over."""

    @property
    def closed_reason(self) -> str:
        """Why nothing new is placed there, and until when; empty if it may be."""
        if self.cordon is not None:
            why = f": {self.cordon.message}" if self.cordon.message else ""
            return f"cordoned by {self.cordon.actor}{why}"
        if self.quarantined_until_s is None:
            fence_s = self.fenced_until_s
            return "" if fence_s is None else f"silent: ranks may run there until {_clock(fence_s)}"
        last = self.faults[-1]
        told = f", the last at {_clock(last.time_s)}: {last.message[:_SHOWN]}" if last.message else ""
        return f"quarantined until {_clock(self.quarantined_until_s)} ({_counted(self.faults)}{told})"


def assess_node(events: Iterable[NodeEvent], now_s: float, rule: QuarantinePolicy) -> NodeHealth:
    """The health of the one node that all `events` are of, from first to last."""
    happened = sorted((event for event in events if event.time_s <= now_s), key=lambda event: event.time_s)
    orders = [event for event in happened if event.kind in _ORDERS]
    trusted_s = max((event.time_s for event in orders if event.kind is NodeEventKind.UNCORDONED), default=-float("inf"))
    since_s = max(trusted_s, now_s - MEMORY_S)
    faults = _counting([event for event in happened if event.kind in WEIGHTS and event.time_s > since_s])
    cordon = orders[-1] if orders and orders[-1].kind is NodeEventKind.CORDONED else None
    score, at_s, until_s, quarantines = 0.0, now_s, -float("inf"), 0
    for time_s, weight in _episodes(faults):
        score = _decayed(score, time_s - max(at_s, until_s), rule) + weight
        at_s = time_s
        if score >= QUARANTINE_AT and rule.quarantine_s > 0:
            quarantines += time_s >= until_s  # a fault of ranks that still run there prolongs the one that is
            until_s = max(until_s, time_s + min(_LONGEST_S, rule.quarantine_s * 2 ** (quarantines - 1)))
    return NodeHealth(
        score=_decayed(score, now_s - max(at_s, until_s), rule),
        quarantined_until_s=until_s if now_s < until_s else None,
        quarantines=quarantines,
        faults=tuple(faults),
        cordon=cordon,
        fenced_until_s=max(
            (each.time_s + FENCE_S for each in find_unproven_silences(happened, now_s, since_s)), default=None
        ),
    )


def assess_nodes(events: Iterable[NodeEvent], now_s: float, rule: QuarantinePolicy) -> dict[str, NodeHealth]:
    """The health of every node that anything has happened to."""
    by_node: dict[str, list[NodeEvent]] = {}
    for event in events:
        by_node.setdefault(event.node, []).append(event)
    return {node: assess_node(mine, now_s, rule) for node, mine in by_node.items()}


def find_unproven_silences(
    events: Iterable[NodeEvent], now_s: float, since_s: float = -float("inf")
) -> list[NodeEvent]:
    """When nodes fell silent to jobs that may still have ranks there."""
    found = list(events)
    cleared = {event.key for event in found if event.kind is NodeEventKind.CLEARED}
    silent = [event for event in found if event.kind is NodeEventKind.SILENT and event.time_s > since_s]
    return [event for event in silent if now_s < event.time_s + FENCE_S and proof_key(event) not in cleared]


def silence_key(node_id: str, reservation: str) -> str:
    """Of the event that a node of the cluster fell silent to a job, with what the job held there."""
    return f"silent:{node_id}:{reservation}"


def is_silence_of(silent: NodeEvent, node_id: str) -> bool:
    """Whether it was this node of the cluster: a machine that comes back has another id, and nobody there can tell
    what the old one left running."""
    return silent.key.startswith(silence_key(node_id, ""))


def proof_key(silent: NodeEvent) -> str:
    """Of the event that a node is clear of the job that it was silent to."""
    return f"cleared:{silent.key}"


def node_event_kind_of(reason: str, evidence: Any) -> NodeEventKind | None:
    """What an incident that names a node says of it. Errors and exits of training code say nothing."""
    if reason == Reason.RANK_EXIT and isinstance(evidence, Mapping):
        told = (NodeEventKind.DEVICE, "device"), (NodeEventKind.OUT_OF_MEMORY, "out_of_memory")
        return next((kind for kind, name in told if name in evidence), None)
    return _BY_REASON.get(reason)


_BY_REASON: Mapping[str, NodeEventKind] = {
    Reason.AGENT_LOST: NodeEventKind.AGENT_LOST,
    Reason.NODE_LOST: NodeEventKind.NODE_LOST,
    Reason.HANG: NodeEventKind.BLAMED,
}


def _counting(faults: Sequence[NodeEvent]) -> list[NodeEvent]:
    newest = {(fault.kind, fault.job_id): fault for fault in faults if fault.kind in _ONCE_A_JOB}
    return [fault for fault in faults if newest.get((fault.kind, fault.job_id), fault) is fault]


def _episodes(faults: Iterable[NodeEvent]) -> list[tuple[float, float]]:
    """Time and weight of each fault, its consequences put to it."""
    found: list[tuple[float, float]] = []
    for fault in faults:
        weight = WEIGHTS[fault.kind]
        if found and fault.time_s - found[-1][0] <= _ONCE_S:
            found[-1] = (found[-1][0], max(weight, found[-1][1]))
        else:
            found.append((fault.time_s, weight))
    return found


def _decayed(score: float, seconds: float, rule: QuarantinePolicy) -> float:
    """After so many seconds of use: that nothing happens to a node that is not used does not speak for it."""
    return score * 0.5 ** (max(0.0, seconds) / rule.half_life_s)


def _counted(faults: Iterable[NodeEvent]) -> str:
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _clock(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
