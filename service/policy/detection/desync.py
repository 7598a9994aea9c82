"""Detect ranks that entered different collectives, and ranks that others wait for. Pure.

All ranks of a group must enter the same collectives in the same order. If one rank does not, the others hang or get
data of another collective. This is an error of the training code and repeats on every attempt.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause

_ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_allgather_base", "_reduce_scatter_base"})
"""Collectives in which every rank of a group passes the same number of elements of the same type."""

EnteredCollectives = Mapping[int, Sequence[Mapping[str, Any]] | None]
"""Rank → its last collectives, the oldest first (`workers/rank/flight_recorder.py`); None if the rank did not
answer."""
_NOTHING_RAISED: EnteredCollectives = {}
_NONE_CRASHED: Mapping[int, str] = {}
_Group = tuple[str, int]
_Call = tuple[str, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Desync:
    """Ranks of one group that are in different collectives."""

    group: str
    sequence: int
    """Number of the collective within the group: the first that differs between ranks."""
    calls: Mapping[int, str]
    """Rank → collective that it entered there."""
    outliers: tuple[int, ...]
    """Ranks in another collective than the majority; empty without a majority."""

    @property
    def summary(self) -> str:
        """One sentence for people."""
        most = next((call for rank, call in self.calls.items() if rank not in self.outliers), "")
        where = f"collective {self.sequence} of group {self.group}"
        if self.outliers:
            of_call: dict[str, list[int]] = {}
            for rank in self.outliers:
                of_call.setdefault(self.calls[rank], []).append(rank)
            each = ", ".join(f"{_ranks(ranks)} into {call}" for call, ranks in of_call.items())
            each = f"{each}, the others into {most}"
        else:
            each = ", ".join(f"rank {rank} into {call}" for rank, call in self.calls.items())
        return f"ranks entered different collectives: {each}, as {where}"


@dataclass(frozen=True)
class MissingRanks:
    """Ranks that have not entered a collective in which other ranks of their group wait."""

    group: str
    sequence: int
    call: str
    ranks: tuple[int, ...]

    @property
    def summary(self) -> str:
        """One phrase for people."""
        return f"{_ranks(self.ranks)} did not enter {self.call}, collective {self.sequence} of group {self.group}"


def entered_collectives(
    places: Mapping[int, Mapping[str, Any]], raised: EnteredCollectives = _NOTHING_RAISED
) -> EnteredCollectives:
    """Return the collectives from the ranks' answers to an inspection, and from their errors.

    Args:
        places: rank → its answer.
        raised: rank → collectives that its error reports. Such a rank may end before it can answer.
    """
    answers = {rank: place.get("collectives") for rank, place in places.items()}
    return {rank: raised.get(rank) or answers.get(rank) for rank in {**raised, **answers}}


def find_desync(entered: EnteredCollectives) -> Desync | None:
    """Return the first point at which ranks of a group entered different collectives; None if all reports agree."""
    for group, by_rank in sorted(_groups(entered).items()):
        calls: dict[int, dict[int, _Call]] = {}
        for rank, mine in by_rank.items():
            for each in mine:
                calls.setdefault(each["sequence"], {})[rank] = _call(each)
        for sequence in sorted(calls):
            if len(set(calls[sequence].values())) > 1:
                return _desync(group, sequence, calls[sequence], by_rank)
    return None


def find_missing_ranks(entered: EnteredCollectives) -> MissingRanks | None:
    """Return the ranks that have not entered a collective in which others wait; None if no rank is known to wait."""
    for (name, _), by_rank in sorted(_groups(entered).items()):
        newest = {rank: calls[-1] for rank, calls in by_rank.items()}
        waiting = [each for each in newest.values() if not each["is_over"]]
        if not waiting:
            continue
        last = max(waiting, key=lambda each: each["sequence"])
        missing = tuple(rank for rank, each in sorted(newest.items()) if each["sequence"] < last["sequence"])
        if missing:
            return MissingRanks(last["title"] or name, last["sequence"], _describe_call(_call(last)), missing)
    return None


def add_desync_evidence(cause: Cause, entered: EnteredCollectives, crashed: Mapping[int, str] = _NONE_CRASHED) -> Cause:
    """Add the ranks' collectives to a cause that a library reported by aborting; return other causes unchanged.

    Args:
        cause: the cause.
        entered: collectives of the ranks that still answered, or raised.
        crashed: rank → the line at which it aborted. Its collectives are lost.
    """
    if cause.reason is not Reason.DESYNC or cause.evidence is not None:
        return cause
    found = find_desync(entered)
    collectives = {str(rank): describe_newest(calls) for rank, calls in entered.items()}
    places = {str(rank): place for rank, place in sorted(crashed.items())}
    evidence = {"kind": "desync", "collectives": collectives, "crashed_at": places}
    if found is None:
        summary = f"{cause.summary}: a rank got data of another collective"
        if places:
            at = ", ".join(f"rank {rank} at {place}" for rank, place in places.items())
            summary = f"{summary}; aborted: {at}"
        return replace(cause, summary=summary, evidence=evidence)
    rank = found.outliers[0] if len(found.outliers) == 1 else cause.rank
    return replace(cause, summary=f"{found.summary} ({cause.summary})", rank=rank, evidence=evidence)


def describe_newest(calls: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the newest collective of a rank, for people."""
    if calls is None:
        return "no answer"
    if not calls:
        return "none"
    last = calls[-1]
    state = "finished" if last["is_over"] else "waiting"
    return (
        f"{_describe_call(_call(last))}, number {last['sequence']} of group {last['title'] or last['group']} ({state})"
    )


def _groups(entered: EnteredCollectives) -> dict[_Group, dict[int, list[Mapping[str, Any]]]]:
    found: dict[_Group, dict[int, list[Mapping[str, Any]]]] = {}
    for rank, calls in sorted(entered.items()):
        for each in calls or ():
            found.setdefault((each["group"], each["first_rank"]), {}).setdefault(rank, []).append(each)
    return found


def _desync(
    group: _Group, sequence: int, calls: Mapping[int, _Call], by_rank: Mapping[int, Sequence[Mapping[str, Any]]]
) -> Desync:
    (most, count), *_ = Counter(calls.values()).most_common(1)
    outliers = tuple(rank for rank, call in calls.items() if call != most) if 2 * count > len(calls) else ()
    title = next(iter(by_rank.values()))[0]["title"] or group[0]
    return Desync(title, sequence, {rank: _describe_call(call) for rank, call in calls.items()}, outliers)


def _call(each: Mapping[str, Any]) -> _Call:
    """Return the part of a call that must be equal for all ranks of a group."""
    if each["name"] not in _ALIKE:
        return each["name"], (), ()
    return each["name"], tuple(math.prod(shape) for shape in each["shapes"]), tuple(each["types"])


def _describe_call(call: _Call) -> str:
    name, counts, types = call
    of = ", ".join(f"{count} {kind}" for count, kind in zip(counts, types, strict=False))
    return f"{name} of {of}" if of else name


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
