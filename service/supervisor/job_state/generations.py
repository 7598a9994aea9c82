"""Generation records, and the create-only log that decides which supervisor owns each number."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from regroup.service.domain.job_events import GenerationStarted, RankPlace
from regroup.service.domain.layout import Layout
from regroup.service.domain.rank_map import RankMap
from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource

MOST_LISTED = 512
"""Number of ranks up to which the event of a generation lists each rank."""


class SupersededError(Exception):
    """Another supervisor of this job has created the next record: this one must stop."""


class Records(Protocol):
    """Small create-only records that outlive every supervisor (Ray's GCS key-value store)."""

    async def create(self, key: str, value: bytes) -> bool:
        """Write a record; False if the key exists, whose value then stays."""
        ...

    async def read(self, prefix: str) -> Mapping[str, bytes]:
        """Return all records whose key begins with `prefix`."""
        ...


@dataclass(frozen=True)
class Generation:
    """One formation of a job's ranks."""

    number: int
    layout: Layout
    ranks: RankMap
    source: RestoreSource
    cause: str
    """Why it was formed: `start` or the reason that ended the one before."""

    @property
    def start_step(self) -> int:
        """Committed steps it starts from."""
        return self.source.step

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes in rank order."""
        return tuple(dict.fromkeys(node.node_id for node in self.ranks.nodes))

    def on(self, node_id: str) -> tuple[RankPlace, ...]:
        """Return the ranks on one node."""
        return self.ranks.on(node_id)

    def to_event(self) -> GenerationStarted:
        """Return the event of its start."""
        is_large = len(self.ranks) > MOST_LISTED
        return GenerationStarted(
            number=self.number,
            layout=self.layout.to_json(),
            world_size=len(self.ranks),
            ranks=() if is_large else tuple(self.ranks),
            rank_map=self.ranks.to_json() if is_large else None,
            start_step=self.start_step,
            restore=_source_json(self.source),
            cause=self.cause,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data. It contains each node once, and grows little with each rank."""
        return {
            "number": self.number,
            "layout": asdict(self.layout),
            "ranks": self.ranks.to_json(),
            "source": _source_json(self.source),
            "cause": self.cause,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Generation":
        """Parse the output of `to_json`."""
        source = dict(data["source"])
        source["kind"] = RestoreKind(source["kind"])
        fetch = tuple((int(rank), str(node)) for rank, node in source.pop("fetch", ()))
        return cls(
            data["number"],
            Layout(**data["layout"]),
            RankMap.from_json(data["ranks"]),
            replace(RestoreSource(**source), fetch=fetch),
            data["cause"],
        )


@dataclass(frozen=True)
class PinnedSet:
    """Snapshots of one step that every rank retains for a checkpoint."""

    step: int
    differing: tuple[str, ...] = ()
    """Groups of tensors of which ranks have different copies, so that the checkpoint keeps all of them."""


class GenerationLog:
    """A job's generations, in order. The supervisor that creates number g+1 owns it.

    `stored`: number → start step of the generations that the database had when this supervisor was created. They matter
    if the cluster lost the records: numbers continue to grow, and overtaken state stays overtaken.
    """

    def __init__(self, records: Records, job_id: str, stored: Mapping[int, int] | None = None) -> None:
        self._records = records
        self._prefix = f"generation/{job_id}/"
        self._stored = dict(stored or {})
        self.past: tuple[Generation, ...] = ()
        """Generations that this cluster has records of."""

    async def load(self) -> None:
        """Load the records of earlier supervisors of this job."""
        found = await self._records.read(self._prefix)
        generations = [Generation.from_json(json.loads(value)) for value in found.values()]
        self.past = tuple(sorted(generations, key=lambda generation: generation.number))

    async def create(self, generation: Generation) -> Generation:
        """Give a generation the next number and record it before any of its ranks is forked.

        Raises:
            SupersededError: another supervisor owns that number.
        """
        numbered = replace(generation, number=self.next_number)
        key = f"{self._prefix}{numbered.number:08d}"
        if not await self._records.create(key, json.dumps(numbered.to_json()).encode()):
            raise SupersededError(f"generation {numbered.number} belongs to another supervisor")
        self.past = (*self.past, numbered)
        return numbered

    @property
    def next_number(self) -> int:
        """Number of the next generation."""
        return max(self.starts, default=0) + 1

    @property
    def starts(self) -> Mapping[int, int]:
        """Generation → step it started from."""
        return {**self._stored, **{generation.number: generation.start_step for generation in self.past}}


def _source_json(source: RestoreSource) -> dict[str, Any]:
    """Return plain data without the holders of a set that other ranks wrote: of a large job, these are a megabyte.

    Nodes get them when their ranks are formed, and never again.
    """
    return asdict(replace(source, fetch=()) if source.world_size else source)
