"""What to do when a generation ends: classify → charge a budget → choose a rung and a source of state. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regroup.service.domain.states import (BUDGET_BY_REASON, PROGRESS_REASONS, Reason)

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
_BUDGET_OF_THE_CODE = {
    Reason.USER_ERROR: "user_error",
    Reason.DESYNC: "user_error",
    Reason.NON_FINITE: "non_finite",
    Reason.DEVICE_ERROR: "device_error",
}
"""Ends the job unless its spec allows more tries."""
_NO_ACCIDENT_TWICE = frozenset({Reason.NON_FINITE, Reason.DEVICE_ERROR})
"""At the same step, from the same state."""
_RAISED_BY_ALL = frozenset({Reason.NON_FINITE, Reason.LOSS_SPIKE, Reason.SILENT_CORRUPTION})
_OUT_OF_MEMORY = ": its node was out of memory; take smaller batches, fewer loader workers, or more resources.memory"
_MISMATCH = ("a distributed collective mismatch", "mismatch between collectives")
"""What gloo says when a rank is sent what belongs to another collective, and torch where it is told to compare."""
MOST_SHARDS = 240
"""A set of more ranks is not restored onto others from memory: each of them is handed all of it at once."""
_BACKOFF_CAP_S = 30.0
_BACKOFF_FROM = {Reason.IO_ERROR: 1}
"""Storage and connections come back later than processes do: it waits after the first such failure, else the third."""


@dataclass(frozen=True)
class Failure:
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
class Exit:
    """A process that ended by itself, before it was told to. `rank` -1 is the store, -2 a zygote."""

    rank: int
    code: int
    time_s: float
    node_id: str
    out_of_memory: bool = False
    """Its node was out of memory then."""
    said: str = ""
    """Of one that aborted: the end of its standard error."""


@dataclass(frozen=True)
class Loss:
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
    failure: Failure | None = None
    evidence: Mapping[str, Any] | None = None
    """What else is known of it, as plain data: of a hang, where every rank was."""


def classify(
    failures: Sequence[Failure], exits: Sequence[Exit], losses: Sequence[Loss], found: Cause | None = None
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
            reason = Reason.DESYNC if _is_mismatch(exit.said) else Reason.RANK_EXIT
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


def by_its_device(cause: Cause, broken: Mapping[str, str], node_of_rank: Mapping[int, str]) -> Cause:
    """A rank that died on a node whose driver has given a device up (`broken`: node → what it says) died of that."""
    node = cause.node_id or node_of_rank.get(-1 if cause.rank is None else cause.rank, "")
    if cause.reason is not Reason.RANK_EXIT or node not in broken:
        return cause
    evidence = {**(cause.evidence or {"kind": "exit"}), "device": broken[node]}
    return replace(cause, summary=f"{cause.summary}; {broken[node]}", node_id=node, evidence=evidence)


def _is_mismatch(said: str) -> bool:
    return any(part in said for part in _MISMATCH)


def _cause(reason: Reason, failure: Failure) -> Cause:
    if reason in _RAISED_BY_ALL:  # whoever said it first is no more to blame than the others
        odd = failure.details.get("odd_ranks", ())
        is_named = len(odd) == 1 and failure.details.get("is_certain")
        return Cause(reason, failure.message, failure.time_s, odd[0] if is_named else None, None, failure)
    summary = f"rank {failure.rank}: {failure.kind}: {failure.message}"
    return Cause(reason, summary, failure.time_s, failure.rank, None, failure)


def _ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exited with code {code}"


@dataclass(frozen=True)
class Charge:
    """One failure on a budget's account."""

    budget: str
    time_s: float
    step: int
    """Committed steps of the job when it happened."""


def budget_of(reason: Reason, budgets: Mapping[str, int]) -> str | None:
    """The budget that a reason is charged to; None if it is charged to none: it ends the job, as an error of the code,
    a step that has no finite numbers or a device, does unless allowed, or it was planned."""
    if (budget := _BUDGET_OF_THE_CODE.get(reason)) is not None:
        return budget if budgets.get(budget) else None
    return BUDGET_BY_REASON.get(reason)


@dataclass(frozen=True)
class Verdict:
    """Whether the job goes on, and how long it waits before."""

    recover: bool
    reason: Reason
    """Why the job ends, if it does."""
    message: str
    backoff_s: float = 0.0


def judge(
    cause: Cause,
    charges: Sequence[Charge],
    budgets: Mapping[str, int],
    *,
    window_s: float,
    refill_steps: int,
    now_s: float,
    step: int,
) -> Verdict:
    """Whether the budgets allow one more recovery. `charges` holds earlier failures, oldest first.

    A budget is a leaky bucket: each failure adds one, each `refill_steps` committed steps take one away, and failures
    older than the window are forgotten. Failures in a row without progress wait longer and longer.
    """
    if cause.reason in PROGRESS_REASONS:
        return Verdict(True, cause.reason, cause.summary)
    budget = budget_of(cause.reason, budgets)
    if budget is None:
        return Verdict(False, cause.reason, cause.summary)
    mine = [charge for charge in charges if charge.budget == budget and now_s - charge.time_s <= window_s]
    if cause.reason in _NO_ACCIDENT_TWICE and any(charge.step == step for charge in mine):
        return Verdict(False, cause.reason, f"{cause.summary}. It was so before, from the same state: no accident")
    mine.append(Charge(budget, now_s, step))
    if level_of(mine, refill_steps) > budgets[budget]:
        message = (
            f"{cause.summary}; {len(mine)} failures of budget {budget!r} within {window_s:.0f} s exceed "
            f"recovery.budgets.{budget}={budgets[budget]}"
        )
        return Verdict(False, Reason.BUDGET_EXHAUSTED, message)
    in_a_row = next((n for n, charge in enumerate(reversed(mine)) if charge.step != step), len(mine))
    doublings = in_a_row - _BACKOFF_FROM.get(cause.reason, 3)
    backoff_s = min(_BACKOFF_CAP_S, 0.5 * 2**doublings) if doublings >= 0 else 0.0
    return Verdict(True, cause.reason, cause.summary, backoff_s)


def level_of(charges: Sequence[Charge], refill_steps: int) -> float:
    """How full the bucket is right after the last of these charges of one budget, oldest first."""
    level, last_step = 0.0, 0
    for charge in charges:
        gained = max(0, charge.step - last_step)  # what was restored may be older than what failed before
        level = max(0.0, level - gained / refill_steps) + 1
        last_step = charge.step
    return level


@dataclass(frozen=True)
class Shard:
    """A verified shard in some node's memory."""

    rank: int
    world_size: int
    generation: int
    step: int
    layout_hash: str
    node_id: str
    alike: Mapping[str, int] = field(default_factory=dict[str, int])
    """Checksum of each part that other ranks hold too, by its name."""


@dataclass(frozen=True)
class Saved:
    """A finished checkpoint in durable storage."""

    uri: str
    generation: int
    step: int


@dataclass(frozen=True)
class Source:
    """Where the next generation's state comes from."""

    kind: str
    """`memory`, `checkpoint` or `none`."""
    step: int = 0
    generation: int = 0
    uri: str = ""
    fetch: tuple[tuple[int, str], ...] = ()
    """Of `memory`: ranks whose shard lies on another node than they will run on, and which. With a `world_size`: all
    ranks that wrote it, each with the nodes that hold its shard."""
    world_size: int = 0
    """Of `memory`: ranks that wrote it, where those to come are others or split otherwise; else 0."""

    @property
    def rung(self) -> str:
        """The rung this source means."""
        return "respawn" if self.kind == "memory" else "disk"

    def wanted_on(self, node_id: str, ranks: Sequence[int] | None = None) -> dict[int, str]:
        """Rank → node from which its shard has to be brought to `node_id`, where `ranks` (all, if None) will run."""
        if not self.world_size:
            return {rank: node for rank, node in self.fetch if ranks is None or rank in ranks}
        here = {rank for rank, node in self.fetch if node == node_id}
        return {rank: node for rank, node in self.fetch if rank not in here}


def rung_of(reason: Reason, source: Source, world_size: int, *, is_elsewhere: bool = False) -> str:
    """How a job goes on with `world_size` ranks: `respawn`, `spare` (on other nodes), `resize`, `shrink` (unplanned) or
    `disk`."""
    if source.kind == "memory" and source.world_size:
        return "shrink" if reason is not Reason.RESIZED and world_size < source.world_size else "resize"
    return "spare" if source.kind == "memory" and is_elsewhere else source.rung


def choose_source(
    shards: Sequence[Shard],
    saved: Sequence[Saved],
    starts: Mapping[int, int],
    node_of_rank: Mapping[int, str],
    others: Collection[int] = (),
) -> Source:
    """The newest usable state: memory before disk at the same step, nothing if there is none.

    A set in memory is usable if the shard of every rank of one (generation, step, layout) lies on some node. Where the
    ranks to come are as many and split alike (not so in the generations `others`), each needs its own shard, where it
    will run or from where it lies; otherwise all of them go to every node. An artefact of generation g at step s counts
    only if every later generation started at ≥ s (`starts`: generation → start step): otherwise a later one has
    overtaken it. Where ranks differ in what they should hold alike, one of them is wrong: such a set does not count.
    """
    wrong = set(differing(shards))

    def counts(generation: int, step: int) -> bool:
        return all(start >= step for later, start in starts.items() if later > generation)

    sets: dict[tuple[int, int, int, str], dict[int, list[str]]] = {}
    for shard in shards:
        if (shard.generation, shard.step) not in wrong and shard.rank < shard.world_size:
            key = (shard.step, shard.generation, shard.world_size, shard.layout_hash)
            sets.setdefault(key, {}).setdefault(shard.rank, []).append(shard.node_id)
    whole = {
        (step, generation): (held, world if world != len(node_of_rank) or generation in others else 0)
        for (step, generation, world, _), held in sets.items()
        if len(held) == world and counts(generation, step)
    }
    whole = {key: found for key, found in whole.items() if found[1] <= MOST_SHARDS}
    disk = [(item.step, item.generation, item.uri) for item in saved if counts(item.generation, item.step)]
    best_disk = max(disk, default=None)
    if whole and (best_disk is None or max(whole)[0] >= best_disk[0]):
        step, generation = max(whole)
        held, world_size = whole[step, generation]
        if world_size:
            everywhere = tuple((rank, node) for rank, nodes in sorted(held.items()) for node in nodes)
            return Source("memory", step, generation, fetch=everywhere, world_size=world_size)
        fetch = ((rank, nodes[-1]) for rank, nodes in sorted(held.items()) if node_of_rank[rank] not in nodes)
        return Source("memory", step, generation, fetch=tuple(fetch))
    if best_disk is not None:
        return Source("checkpoint", best_disk[0], best_disk[1], best_disk[2])
    return Source("none")


def differing(shards: Sequence[Shard]) -> list[tuple[int, int]]:
    """Generation and step of sets in which ranks hold different values of what they should hold alike."""
    sets: dict[tuple[int, int], list[Mapping[str, int]]] = {}
    for shard in shards:
        sets.setdefault((shard.generation, shard.step), []).append(shard.alike)
    return sorted(key for key, held in sets.items() if not is_alike(held))


def is_alike(held: Sequence[Mapping[str, int]]) -> bool:
    """Whether ranks hold the same of all that they should hold alike, by the checksums of each."""
    known: dict[str, int] = {}
    return all(known.setdefault(name, digest) == digest for each in held for name, digest in each.items())
