"""Classify the cause of the end of a generation. Pure."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.crash_place import find_crash_place

_NO_NAMES: Mapping[str, str] = {}
STORE_RANK = -1
ZYGOTE_RANK = -2
_REASON_BY_ERROR_CLASS = {
    "user": Reason.USER_ERROR,
    "io": Reason.IO_ERROR,
    "device": Reason.DEVICE_ERROR,
    "input": Reason.INVALID_INPUT,
    "non_finite": Reason.NON_FINITE,
    "loss_spike": Reason.LOSS_SPIKE,
    "corruption": Reason.SILENT_CORRUPTION,
}
_RAISED_BY_ALL = frozenset({Reason.NON_FINITE, Reason.LOSS_SPIKE, Reason.SILENT_CORRUPTION})
_OUT_OF_MEMORY = ": its node was out of memory; take smaller batches, fewer loader workers, or more resources.memory"
_MISMATCH = ("a distributed collective mismatch", "mismatch between collectives")
"""Error texts of gloo and torch for a rank that got a message of another collective."""


@dataclass(frozen=True)
class RankFailure:
    """A structured report of an exception."""

    rank: int
    error_class: str
    """`user`, `io`, `device`, `collateral`, `input`, `non_finite`, `loss_spike` or `corruption`."""
    kind: str
    message: str
    traceback: str
    step: int
    phase: str
    time_s: float
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For silent corruption: the ranks that differ and the tensors. For a loss spike: the loss and its expected
    value."""
    failed_holders: tuple[str, ...] = ()
    """Nodes that had the state of this rank and did not deliver it."""


@dataclass(frozen=True)
class ProcessExit:
    """A process that ended without a request to stop. `rank` -1 is the store, -2 a zygote."""

    rank: int
    code: int
    time_s: float
    node_id: str
    out_of_memory: bool = False
    """True if its node was out of memory at that time."""
    stderr_tail: str = ""
    """End of its standard error if it crashed; for a zygote, why it did not start ranks."""
    failed_holders: tuple[str, ...] = ()
    """Nodes that had state for the ranks of this node and did not deliver it."""

    @property
    def crash_place(self) -> str | None:
        """File, line and function in which the rank crashed; None if they are unknown."""
        return find_crash_place(self.stderr_tail) if self.rank >= 0 else None


@dataclass(frozen=True)
class AgentLoss:
    """An agent that stopped responding or whose actor died."""

    node_id: str
    time_s: float


@dataclass(frozen=True)
class Cause:
    """The first failure that is not a consequence of another one."""

    reason: Reason
    summary: str
    time_s: float
    rank: int | None = None
    node_id: str | None = None
    failure: RankFailure | None = None
    evidence: Mapping[str, Any] | None = None
    """Further evidence as plain data; for a hang, the position of every rank."""


def classify_failure(
    failures: Sequence[RankFailure],
    exits: Sequence[ProcessExit],
    losses: Sequence[AgentLoss],
    found: Cause | None = None,
    names: Mapping[str, str] = _NO_NAMES,
) -> Cause:
    """Return the earliest cause that is not collateral.

    A lost agent explains the exits on its node. A zygote's death explains those of its ranks and of the store, which it
    also forked. The loss of a node's agent explains failures to fetch state from it. An exit of a rank that reported an
    exception is that exception. If all failures are collateral, the first one is returned.

    Args:
        found: a hang or a planned end; detected only while nothing else has failed, so it is the cause.
        names: node id → name.
    """
    if found is not None:
        return found  # all other failures are consequences of ending the generation
    candidates = _first_failures(failures, exits, losses, {loss.node_id for loss in losses}, names)
    if candidates:
        return min(candidates, key=lambda cause: cause.time_s)
    if failures:
        first = min(failures, key=lambda failure: failure.time_s)
        return Cause(
            Reason.RANK_EXIT, f"rank {first.rank}: {first.kind}: {first.message}", first.time_s, first.rank, None, first
        )
    assert exits, "a generation ended without any evidence"
    first_exit = min(exits, key=lambda exit: exit.time_s)
    return Cause(
        Reason.RANK_EXIT, f"rank {first_exit.rank} left early", first_exit.time_s, first_exit.rank, first_exit.node_id
    )


def is_explained(
    failures: Sequence[RankFailure], exits: Sequence[ProcessExit], losses: Sequence[AgentLoss], found: Cause | None
) -> bool:
    """Return True if one of the failures is not collateral. Takes the arguments of `classify_failure`.

    A node that did not deliver state may be lost, and that may not be known yet.
    """
    suspects = {node for report in (*failures, *exits) for node in report.failed_holders}
    return found is not None or bool(_first_failures(failures, exits, losses, suspects, _NO_NAMES))


def _first_failures(
    failures: Sequence[RankFailure],
    exits: Sequence[ProcessExit],
    losses: Sequence[AgentLoss],
    gone: AbstractSet[str],
    names: Mapping[str, str],
) -> list[Cause]:
    """Return every failure that no other one explains. `gone`: nodes from which no state can be fetched."""
    reported = {failure.rank for failure in failures}
    zygotes = {exit.node_id: exit for exit in exits if exit.rank == ZYGOTE_RANK}
    candidates: list[Cause] = [
        Cause(Reason.AGENT_LOST, f"agent{_on(loss.node_id, names)} lost", loss.time_s, None, loss.node_id)
        for loss in losses
    ]
    lost = {loss.node_id for loss in losses}
    for failure in failures:
        if not gone.isdisjoint(failure.failed_holders):
            continue
        if (reason := _REASON_BY_ERROR_CLASS.get(failure.error_class)) is not None:
            candidates.append(_cause(Reason.DESYNC if _is_mismatch(failure.message) else reason, failure))
    for exit in exits:
        if exit.node_id in lost or exit.code == 0 or not gone.isdisjoint(exit.failed_holders):
            continue
        if exit.rank == ZYGOTE_RANK:
            died = f"zygote{_on(exit.node_id, names)} died"
            why = f"ranks did not start{_on(exit.node_id, names)}: {exit.stderr_tail}" if exit.stderr_tail else died
            candidates.append(Cause(Reason.ZYGOTE_EXIT, why, exit.time_s, None, exit.node_id))
        elif exit.rank == STORE_RANK and exit.node_id not in zygotes:
            summary = f"store process{_on(exit.node_id, names)} {_ended(exit.code)}"
            candidates.append(Cause(Reason.STORE_EXIT, summary, exit.time_s, None, exit.node_id))
        elif exit.rank >= 0 and exit.rank not in reported and exit.node_id not in zygotes:
            why = f"{_ended(exit.code)}{_OUT_OF_MEMORY if exit.out_of_memory else ''}"
            evidence = {"kind": "exit", "out_of_memory": True} if exit.out_of_memory else None
            reason = Reason.DESYNC if _is_mismatch(exit.stderr_tail) else Reason.RANK_EXIT
            summary = f"rank {exit.rank} {why}"
            if reason is Reason.RANK_EXIT and (place := exit.crash_place) is not None:
                summary = f"{summary} at {place}"
            candidates.append(Cause(reason, summary, exit.time_s, exit.rank, exit.node_id, None, evidence))
    return candidates


def blame_device(cause: Cause, broken: Mapping[str, str], node_of_rank: Mapping[int, str]) -> Cause:
    """Attribute a rank's death to its device if the node's driver reported a failed device.

    Args:
        broken: node id → message of the driver.
    """
    node = cause.node_id or node_of_rank.get(-1 if cause.rank is None else cause.rank, "")
    if cause.reason is not Reason.RANK_EXIT or node not in broken:
        return cause
    evidence = {**(cause.evidence or {"kind": "exit"}), "device": broken[node]}
    return replace(cause, summary=f"{cause.summary}; {broken[node]}", node_id=node, evidence=evidence)


def _on(node_id: str, names: Mapping[str, str]) -> str:
    """Return where a process of a node ran, by the node's name if it has one."""
    return f" on node {names.get(node_id) or node_id[:8]}" if node_id else ""


def _is_mismatch(message: str) -> bool:
    return any(part in message for part in _MISMATCH)


def _cause(reason: Reason, failure: RankFailure) -> Cause:
    if reason in _RAISED_BY_ALL:  # all ranks raise this error: the first report is not the cause
        outliers = failure.details.get("outlier_ranks", ())
        is_named = len(outliers) == 1 and failure.details.get("is_certain")
        return Cause(reason, failure.message, failure.time_s, outliers[0] if is_named else None, None, failure)
    summary = f"rank {failure.rank}: {failure.kind}: {failure.message}"
    return Cause(reason, summary, failure.time_s, failure.rank, None, failure)


def _ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
