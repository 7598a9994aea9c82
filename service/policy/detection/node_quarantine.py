"""Decide which nodes are trusted with ranks, from their fault history: a decaying score and a quarantine. Pure.

Each fault adds its weight to the score of its node. The score halves with each half-life in which the node is used. A
fault that raises the score to `QUARANTINE_AT` quarantines the node: it takes no new ranks until a back-off has passed,
which doubles with each recent quarantine. Running ranks continue. An admin can cordon a node, and uncordon it, which
clears its history.

A node can stop responding and be released without proof that its ranks are dead. Such a node is closed for at most
`FENCE_S`, until an agent there confirms that no process of the job is left. After that time its processes have ended
themselves, or the cluster has lost the node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from regroup.service.domain.states import Reason

QUARANTINE_AT = 2.5
_ONCE_S = 30.0
"""Time after a fault within which further faults count as its consequences: a node with four jobs fails once."""
MEMORY_S = 7 * 24 * 3600.0
"""Age at which faults and quarantines no longer count and can be deleted."""
FENCE_S = 60.0
_LONGEST_S = 24 * 3600.0
_SHOWN = 200
"""Maximum number of characters of a fault's message in an explanation."""


class NodeEventKind(StrEnum):
    """Events that determine the health of a node."""

    NODE_LOST = "node_lost"
    """The cluster lost the node while a job had ranks there."""
    AGENT_LOST = "agent_lost"
    """A job's agent there died or stopped responding."""
    SILENT = "silent"
    """The node was released although it is still in the cluster: ranks may run there. The loss of the agent is a
    separate event."""
    UNKILLABLE = "unkillable"
    """A process there survived SIGKILL."""
    DEVICE = "device"
    """The driver reports a lost GPU or defective GPU memory."""
    PREFLIGHT = "preflight"
    """The node failed the check before ranks start."""
    LINK = "link"
    """The connection to another node failed. One failure does not show which node is at fault."""
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed a rank there because of a memory shortage."""
    BLAMED = "blamed"
    """The evidence of an incident names a rank there."""
    CLEARED = "cleared"
    """No process is left there of the job for which the node was silent."""
    CORDONED = "cordoned"
    """An admin cordoned the node."""
    UNCORDONED = "uncordoned"
    """An admin uncordoned the node."""


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
"""Weight of each kind of fault. A kind that proves the node's fault is enough for a quarantine."""

_ORDERS = frozenset({NodeEventKind.CORDONED, NodeEventKind.UNCORDONED})
_ONCE_A_JOB = frozenset({NodeEventKind.OUT_OF_MEMORY, NodeEventKind.BLAMED})
"""Faults that the job itself may cause: each job counts once, so that one job alone cannot quarantine a node."""


@dataclass(frozen=True)
class NodeEvent:
    """One event of a node."""

    node: str
    """Permanent name of the node (`topology.Node.machine`)."""
    kind: NodeEventKind
    time_s: float
    """Time in Unix seconds."""
    key: str
    """Unique key: a repeated report of an event counts once."""
    job_id: str = ""
    actor: str = ""
    """User that cordoned or uncordoned the node."""
    message: str = ""


@dataclass(frozen=True)
class QuarantinePolicy:
    """Parameters of scoring and quarantine."""

    half_life_s: float
    quarantine_s: float
    """Duration of the first quarantine; 0 disables quarantine."""


@dataclass(frozen=True)
class NodeHealth:
    """Health of a node at one moment, from its history."""

    score: float = 0.0
    quarantined_until_s: float | None = None
    """End of the quarantine; None if the node is not quarantined."""
    quarantines: int = 0
    """Number of recent quarantines, including the current one."""
    faults: tuple[NodeEvent, ...] = ()
    """Faults that count, the oldest first."""
    cordon: NodeEvent | None = None
    """The cordon event of an admin, if the node is cordoned."""
    fenced_until_s: float | None = None
    """Time until which processes from before the node's silence may still run; None if there are none."""

    @property
    def closed_reason(self) -> str:
        """Reason why the node takes no new ranks, and until when; empty if it takes them."""
        if self.cordon is not None:
            why = f": {self.cordon.message}" if self.cordon.message else ""
            return f"cordoned by {self.cordon.actor}{why}"
        if self.quarantined_until_s is None:
            fence_s = self.fenced_until_s
            return "" if fence_s is None else f"unresponsive: ranks may run there until {_clock(fence_s)}"
        last = self.faults[-1]
        newest = f", the last at {_clock(last.time_s)}: {last.message[:_SHOWN]}" if last.message else ""
        return f"quarantined until {_clock(self.quarantined_until_s)} ({_counted(self.faults)}{newest})"


def assess_node(events: Iterable[NodeEvent], now_s: float, rule: QuarantinePolicy) -> NodeHealth:
    """Return the health of the one node that all `events` belong to."""
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
    """Return the health of every node with events."""
    by_node: dict[str, list[NodeEvent]] = {}
    for event in events:
        by_node.setdefault(event.node, []).append(event)
    return {node: assess_node(mine, now_s, rule) for node, mine in by_node.items()}


def find_unproven_silences(
    events: Iterable[NodeEvent], now_s: float, since_s: float = -float("inf")
) -> list[NodeEvent]:
    """Return the events of silent nodes on which ranks of a job may still run."""
    found = list(events)
    cleared = {event.key for event in found if event.kind is NodeEventKind.CLEARED}
    silent = [event for event in found if event.kind is NodeEventKind.SILENT and event.time_s > since_s]
    return [event for event in silent if now_s < event.time_s + FENCE_S and proof_key(event) not in cleared]


def silence_key(node_id: str, reservation: str) -> str:
    """Return the key of the event that a node stopped responding to a job, with the job's reservation there."""
    return f"silent:{node_id}:{reservation}"


def is_silence_of(silent: NodeEvent, node_id: str) -> bool:
    """Return True if the event belongs to this node of the cluster. A machine that returns has another id, and no agent
    there knows the old processes."""
    return silent.key.startswith(silence_key(node_id, ""))


def proof_key(silent: NodeEvent) -> str:
    """Return the key of the event that proves that the node is clear of the job."""
    return f"cleared:{silent.key}"


def node_event_kind_of(reason: str, evidence: Any) -> NodeEventKind | None:
    """Return the node event of an incident's reason and evidence. Errors and exits of training code have none."""
    if reason == Reason.RANK_EXIT and isinstance(evidence, Mapping):
        kinds = (NodeEventKind.DEVICE, "device"), (NodeEventKind.OUT_OF_MEMORY, "out_of_memory")
        return next((kind for kind, name in kinds if name in evidence), None)
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
    """Return time and weight of each fault, with its consequences merged."""
    found: list[tuple[float, float]] = []
    for fault in faults:
        weight = WEIGHTS[fault.kind]
        if found and fault.time_s - found[-1][0] <= _ONCE_S:
            found[-1] = (found[-1][0], max(weight, found[-1][1]))
        else:
            found.append((fault.time_s, weight))
    return found


def _decayed(score: float, seconds: float, rule: QuarantinePolicy) -> float:
    """Return the score after `seconds` of use. Time without use does not count in a node's favour."""
    return score * 0.5 ** (max(0.0, seconds) / rule.half_life_s)


def _counted(faults: Iterable[NodeEvent]) -> str:
    counts: dict[str, int] = {}
    for fault in faults:
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in counts.items())


def _clock(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
