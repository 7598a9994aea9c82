"""The bundle of one incident: what its agents left of it in durable storage, and what the database knows, as a zip."""

import asyncio
import io
import json
import posixpath
import zipfile
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regroup.service.domain.errors import NotFoundError
from regroup.service.operations.evidence_summary import summary_text
from regroup.service.store.records import Event, Generation, Incident, JobRow
from regroup.service.store.store import Store

_EVENTS_BEFORE, _EVENTS = 20, 500
"""Of the job's history: from so many events before the incident on, at most so many."""
_NOT_YET = "not left yet: it is once training goes on, or the job ends"
_TEXTS = ("stacks", "stdout", "stderr")


@dataclass(frozen=True)
class Known:
    """What the database knows of one incident."""

    job: JobRow
    number: int
    """From 1 on, oldest first."""
    incident: Incident
    generations: Sequence[Generation]
    """The one that it ended, and the one that came after it."""
    events: Sequence[Event]


async def find_incident(store: Store, job: JobRow, number: int) -> Known:
    """The `number`-th incident of a job, the oldest is 1.

    Raises:
        NotFoundError: the job has had no such incident.
    """
    incidents = await store.incidents(job.id)
    if not 1 <= number <= len(incidents):
        had = f"{len(incidents)} so far, numbered from 1" if incidents else "none so far"
        raise NotFoundError(f"job {job.id} has no incident {number}: {had}")
    incident = incidents[number - 1]
    around = (incident.data.get("generation"), incident.data.get("next_generation"))
    formed = [each for each in await store.generations(job.id) if each.number in around]
    events = await store.events(job.id, max(0, incident.number - _EVENTS_BEFORE), _EVENTS)
    return Known(job, number, incident, formed, events)


async def bundle(known: Known) -> AsyncGenerator[bytes]:
    """The zip, piece by piece, a node at a time. What cannot be had is said in its `summary.txt`."""
    data = known.incident.data
    stream = _Stream()
    nodes: list[Mapping[str, Any]] = []
    missing = dict(data.get("evidence_missing") or {})
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in _documents(known):
            archive.writestr(name, json.dumps(value, indent=1))
        archive.writestr("events.jsonl", "".join(json.dumps(asdict(event)) + "\n" for event in known.events))
        for node_id, node_name in _nodes(known).items():
            if node_name in missing:
                continue
            if data.get("evidence_bytes") is None:
                missing[node_name] = _NOT_YET
                continue
            uri = posixpath.join(known.job.storage_uri, "evidence", known.incident.id, f"{node_id}.json")
            try:
                seen = await asyncio.to_thread(_read, uri)
            except FileNotFoundError:
                missing[node_name] = f"{uri} does not exist"
                continue
            except (OSError, ImportError, ValueError) as error:
                missing[node_name] = f"{uri} cannot be read from the server: {type(error).__name__}: {error}"
                continue
            for name, text in _files(seen):
                archive.writestr(name, text)
            nodes.append(_without(seen, *_TEXTS))
            yield stream.take()
        archive.writestr("summary.txt", summary_text(known.number, data, nodes, missing))
    yield stream.take()


def _documents(known: Known) -> Iterator[tuple[str, Any]]:
    yield "incident.json", {**known.incident.data, "number": known.number}
    yield "spec.json", known.job.spec
    for formed in known.generations:
        yield f"generation-{formed.number}.json", asdict(formed)


def _nodes(known: Known) -> dict[str, str]:
    """Id → name, of the generation that the incident ended."""
    ended = known.incident.data.get("generation")
    ranks = [place for formed in known.generations if formed.number == ended for place in formed.ranks]
    return {place["node_id"]: place["node_name"] for place in ranks}


def _files(seen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for rank, at in seen["ranks"].items():
        for kind in _TEXTS:
            if at.get(kind):
                yield f"ranks/{rank}/{kind}.txt", at[kind]
        if at.get("collectives"):
            yield f"ranks/{rank}/collectives.jsonl", "".join(json.dumps(each) + "\n" for each in at["collectives"])
    yield f"nodes/{seen['node']}.json", json.dumps(_without(seen, *_TEXTS, "collectives"), indent=1)


def _without(seen: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    """What a node left, but for these of each rank."""
    ranks = {rank: {key: at[key] for key in at if key not in left_out} for rank, at in seen["ranks"].items()}
    return {**seen, "ranks": ranks}


def _read(uri: str) -> dict[str, Any]:
    from fsspec.core import url_to_fs  # a server starts without it; it imports the storage's own package, too

    fs, path = url_to_fs(uri)
    return json.loads(fs.cat_file(path))


class _Stream(io.RawIOBase):
    """Where a zip is written to be taken away piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
