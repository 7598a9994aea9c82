"""Whether ranks went into different collectives, and who waits for whom there. Pure.

Ranks of a group must enter the same collectives in the same order. Where one does not, the rest waits for ever, or gets
what was meant for another: an error of the training code, which comes back however often it is tried.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regroup.service.domain.states import Reason
from regroup.service.policy.recovery.classify import Cause

_ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_allgather_base", "_reduce_scatter_base"})
"""Collectives to which every rank of a group brings as many elements of one type."""

EnteredCollectives = Mapping[int, Sequence[Mapping[str, Any]] | None]
"""Rank → the collectives that it entered last, oldest first (`workers/rank/flight_recorder.py`); None: no answer."""
_Group = tuple[str, int]
_Call = tuple[str, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Desync:
    """Ranks of one group that are in different collectives."""

    group: str
    sequence: int
    """Number of the collective within the group: the first that was not the same one for all."""
    calls: Mapping[int, str]
    """Rank → what it entered there."""
    outliers: tuple[int, ...]
    """The few who entered something else than most; nobody where there are no most."""

    @property
    def summary(self) -> str:
        """One sentence for people."""
        most = next((call for rank, call in self.calls.items() if rank not in self.outliers), "")
        where = f"collective {self.sequence} of group {self.group}"
        if self.outliers:
            theirs = self.calls[self.outliers[0]]
            each = f"{_ranks(self.outliers)} into {theirs}, the others into {most}"
        else:
            each = ", ".join(f"rank {rank} into {call}" for rank, call in self.calls.items())
        return f"ranks went into different collectives: {each}, as {where}"


@dataclass(frozen=True)
class MissingRanks:
    """Ranks that have not entered a collective in which others of their group wait."""

    group: str
    sequence: int
    call: str
    ranks: tuple[int, ...]

    @property
    def summary(self) -> str:
        """One phrase for people."""
        return f"{_ranks(self.ranks)} did not come to {self.call}, collective {self.sequence} of group {self.group}"


def entered_collectives(places: Mapping[int, Mapping[str, Any]]) -> EnteredCollectives:
    """What ranks said of their collectives when they were asked where they are."""
    return {rank: place.get("collectives") for rank, place in places.items()}


def find_desync(entered: EnteredCollectives) -> Desync | None:
    """The first place where ranks of a group entered different collectives; None if all that is known agrees."""
    for group, by_rank in sorted(_groups(entered).items()):
        calls: dict[int, dict[int, _Call]] = {}
        for rank, known in by_rank.items():
            for each in known:
                calls.setdefault(each["sequence"], {})[rank] = _call(each)
        for sequence in sorted(calls):
            if len(set(calls[sequence].values())) > 1:
                return _desync(group, sequence, calls[sequence], by_rank)
    return None


def find_missing_ranks(entered: EnteredCollectives) -> MissingRanks | None:
    """Who has not come to a collective that others of the group are in; None if nobody is known to wait so."""
    for (name, _), by_rank in sorted(_groups(entered).items()):
        newest = {rank: known[-1] for rank, known in by_rank.items()}
        waiting = [each for each in newest.values() if not each["is_over"]]
        if not waiting:
            continue
        last = max(waiting, key=lambda each: each["sequence"])
        missing = tuple(rank for rank, each in sorted(newest.items()) if each["sequence"] < last["sequence"])
        if missing:
            return MissingRanks(last["title"] or name, last["sequence"], _told(_call(last)), missing)
    return None


def add_desync_evidence(cause: Cause, entered: EnteredCollectives) -> Cause:
    """A cause that a library told, by aborting, with what is known of the ranks' collectives; any other as it is."""
    if cause.reason is not Reason.DESYNC or cause.evidence is not None:
        return cause
    found = find_desync(entered)
    evidence = {"kind": "desync", "collectives": {str(rank): describe_newest(known) for rank, known in entered.items()}}
    if found is None:
        summary = f"{cause.summary}: it was sent what belongs to another collective than it was in"
        return replace(cause, summary=summary, evidence=evidence)
    rank = found.outliers[0] if len(found.outliers) == 1 else cause.rank
    return replace(cause, summary=f"{found.summary} ({cause.summary})", rank=rank, evidence=evidence)


def describe_newest(known: Sequence[Mapping[str, Any]] | None) -> str:
    """What a rank entered last, for people."""
    if known is None:
        return "no answer"
    if not known:
        return "none"
    last = known[-1]
    state = "over" if last["is_over"] else "in it"
    return f"{_told(_call(last))}, number {last['sequence']} of group {last['title'] or last['group']} ({state})"


def _groups(entered: EnteredCollectives) -> dict[_Group, dict[int, list[Mapping[str, Any]]]]:
    found: dict[_Group, dict[int, list[Mapping[str, Any]]]] = {}
    for rank, known in sorted(entered.items()):
        for each in known or ():
            found.setdefault((each["group"], each["first_rank"]), {}).setdefault(rank, []).append(each)
    return found


def _desync(
    group: _Group, sequence: int, calls: Mapping[int, _Call], by_rank: Mapping[int, Sequence[Mapping[str, Any]]]
) -> Desync:
    (most, count), *_ = Counter(calls.values()).most_common(1)
    odd = tuple(rank for rank, call in calls.items() if call != most) if 2 * count > len(calls) else ()
    title = next(iter(by_rank.values()))[0]["title"] or group[0]
    return Desync(title, sequence, {rank: _told(call) for rank, call in calls.items()}, odd)


def _call(each: Mapping[str, Any]) -> _Call:
    """What must be the same for all ranks of a group."""
    if each["name"] not in _ALIKE:
        return each["name"], (), ()
    return each["name"], tuple(math.prod(shape) for shape in each["shapes"]), tuple(each["types"])


def _told(call: _Call) -> str:
    name, counts, types = call
    of = ", ".join(f"{count} {kind}" for count, kind in zip(counts, types, strict=False))
    return f"{name} of {of}" if of else name


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
