"""What to do when a generation ends: classify → charge a budget → choose a rung and a source of state. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.service.domain.states import Reason

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
"""What gloo says when a rank is sent what belongs to another collective, and torch where it is told to compare."""


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
    """Of corruption: who differs in what; of a loss spike: the loss, and what was to be expected."""


@dataclass(frozen=True)
class ProcessExit:
    """A process that ended by itself, before it was told to. `rank` -1 is the store, -2 a zygote."""

    rank: int
    code: int
    time_s: float
    node_id: str
    out_of_memory: bool = False
    """Its node was out of memory then."""
    stderr_tail: str = ""
    """Of one that aborted: the end of its standard error."""


@dataclass(frozen=True)
class AgentLoss:
    """An agent that fell silent or whose actor died."""

    node_id: str
    time_s: float


@dataclass(frozen=True)
class Cause:
    """The first thing that was not a consequence of something else."""

    reason: Reason
    summary: str
    time_s: float
    rank: int | None = None
    node_id: str | None = None
    failure: RankFailure | None = None
    evidence: Mapping[str, Any] | None = None
    """What else is known of it, as plain data: of a hang, where every rank was."""


def classify_failure(
    failures: Sequence[RankFailure],
    exits: Sequence[ProcessExit],
    losses: Sequence[AgentLoss],
    found: Cause | None = None,
) -> Cause:
    """The earliest cause that is not of a collateral class.

    `found`: a hang, or a planned end; it is only looked for as long as nothing else has happened. A lost agent explains
    the exits on its node; a zygote's death explains its ranks'; an exit whose rank had reported an exception is that
    exception. If all there is is collateral, the first of it stands in.
    """
    if found is not None:
        return found  # the rest came of ending it
    reported = {failure.rank for failure in failures}
    zygotes = {exit.node_id: exit for exit in exits if exit.rank == ZYGOTE_RANK}
    candidates: list[Cause] = [
        Cause(Reason.AGENT_LOST, f"agent on node {loss.node_id[:8]} lost", loss.time_s, None, loss.node_id)
        for loss in losses
    ]
    lost = {loss.node_id for loss in losses}
    for failure in failures:
        if (reason := _REASON_BY_ERROR_CLASS.get(failure.error_class)) is not None:
            candidates.append(_cause(Reason.DESYNC if _is_mismatch(failure.message) else reason, failure))
    for exit in exits:
        if exit.node_id in lost or exit.code == 0:
            continue
        if exit.rank == ZYGOTE_RANK:
            candidates.append(Cause(Reason.ZYGOTE_EXIT, "zygote died", exit.time_s, None, exit.node_id))
        elif exit.rank == STORE_RANK:
            candidates.append(
                Cause(Reason.STORE_EXIT, f"store process {_ended(exit.code)}", exit.time_s, None, exit.node_id)
            )
        elif exit.rank not in reported and exit.node_id not in zygotes:
            why = f"{_ended(exit.code)}{_OUT_OF_MEMORY if exit.out_of_memory else ''}"
            evidence = {"kind": "exit", "out_of_memory": True} if exit.out_of_memory else None
            reason = Reason.DESYNC if _is_mismatch(exit.stderr_tail) else Reason.RANK_EXIT
            summary = f"rank {exit.rank} {why}"
            candidates.append(Cause(reason, summary, exit.time_s, exit.rank, exit.node_id, None, evidence))
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


def blame_device(cause: Cause, broken: Mapping[str, str], node_of_rank: Mapping[int, str]) -> Cause:
    """A rank that died on a node whose driver has given a device up (`broken`: node → what it says) died of that."""
    node = cause.node_id or node_of_rank.get(-1 if cause.rank is None else cause.rank, "")
    if cause.reason is not Reason.RANK_EXIT or node not in broken:
        return cause
    evidence = {**(cause.evidence or {"kind": "exit"}), "device": broken[node]}
    return replace(cause, summary=f"{cause.summary}; {broken[node]}", node_id=node, evidence=evidence)


def _is_mismatch(said: str) -> bool:
    return any(part in said for part in _MISMATCH)


def _cause(reason: Reason, failure: RankFailure) -> Cause:
    if reason in _RAISED_BY_ALL:  # whoever said it first is no more to blame than the others
        odd = failure.details.get("odd_ranks", ())
        is_named = len(odd) == 1 and failure.details.get("is_certain")
        return Cause(reason, failure.message, failure.time_s, odd[0] if is_named else None, None, failure)
    summary = f"rank {failure.rank}: {failure.kind}: {failure.message}"
    return Cause(reason, summary, failure.time_s, failure.rank, None, failure)


def _ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
