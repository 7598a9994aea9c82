"""The evidence bundle of one incident: the agents' files in durable storage and the database's records, as a zip."""

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
from regroup.service.store.rows.records import Event, Generation, Incident, JobRow
from regroup.service.store.store import Store
from regroup.workers.contract.storage_uri import checked_uri

_EVENTS_BEFORE, _MAX_EVENTS = 20, 500
"""Events of the job's history in the bundle: the number before the incident, and the maximum in all."""
_PENDING = "not written yet: the agent writes it when training continues or the job ends"
_TEXTS = ("stacks", "stdout", "stderr")


@dataclass(frozen=True)
class IncidentRecords:
    """Records of one incident in the database."""

    job: JobRow
    number: int
    """Number of the incident; the oldest is 1."""
    incident: Incident
    generations: Sequence[Generation]
    """The generation that the incident ended, and the next one."""
    events: Sequence[Event]


async def find_incident(store: Store, job: JobRow, number: int) -> IncidentRecords:
    """Return the records of an incident of a job by its number; the oldest is 1.

    Raises:
        NotFoundError: the job has no such incident.
    """
    incidents = await store.incidents(job.id)
    if not 1 <= number <= len(incidents):
        existing = f"it has incidents 1 to {len(incidents)}" if incidents else "it has had no incidents"
        raise NotFoundError(f"job {job.id} has no incident {number}: {existing}")
    incident = incidents[number - 1]
    numbers = (incident.data.get("generation"), incident.data.get("next_generation"))
    generations = [each for each in await store.generations(job.id) if each.number in numbers]
    events = await store.events(job.id, max(0, incident.number - _EVENTS_BEFORE), _MAX_EVENTS)
    return IncidentRecords(job, number, incident, generations, events)


async def stream_bundle(records: IncidentRecords) -> AsyncGenerator[bytes]:
    """Yield the zip in pieces, one per node. Its `summary.txt` lists the files that are missing."""
    stream = _Stream()
    nodes: list[Mapping[str, Any]] = []
    missing = dict[str, str]()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        await asyncio.to_thread(_add_files, archive, document_files(records))  # compression grows with the ranks
        for node in node_names(records).items():
            evidence = await read_node(records, *node)
            if isinstance(evidence, str):
                missing[node[1]] = evidence
                continue
            await asyncio.to_thread(_add_files, archive, node_files(evidence))
            nodes.append(without_texts(evidence))
            yield stream.read_pieces()
        archive.writestr("summary.txt", summary_text(records.number, records.incident.data, nodes, missing))
    yield stream.read_pieces()


async def read_node(records: IncidentRecords, node_id: str, node_name: str) -> dict[str, Any] | str:
    """Return the evidence of a node, or the reason why it is missing."""
    data = records.incident.data
    if reason := (data.get("evidence_missing") or {}).get(node_name):
        return str(reason)
    if data.get("evidence_bytes") is None:
        return _PENDING
    uri = posixpath.join(records.job.storage_uri, "evidence", records.incident.id, f"{node_id}.json")
    try:
        return await asyncio.to_thread(_read, uri)
    except FileNotFoundError:
        return f"{uri} does not exist"
    except (OSError, ImportError, ValueError) as error:
        return f"the server cannot read {uri}: {type(error).__name__}: {error}"


def document_files(records: IncidentRecords) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file from the database."""
    yield "incident.json", json.dumps({**records.incident.data, "number": records.number}, indent=1)
    yield "spec.json", json.dumps(records.job.spec, indent=1)
    for generation in records.generations:
        yield f"generation-{generation.number}.json", json.dumps(asdict(generation), indent=1)
    yield "events.jsonl", "".join(json.dumps(asdict(event)) + "\n" for event in records.events)


def node_files(evidence: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file of a node."""
    for rank, entry in evidence["ranks"].items():
        for kind in _TEXTS:
            if entry.get(kind):
                yield f"ranks/{rank}/{kind}.txt", entry[kind]
        if entry.get("collectives"):
            yield f"ranks/{rank}/collectives.jsonl", "".join(json.dumps(each) + "\n" for each in entry["collectives"])
    yield f"nodes/{evidence['node']}.json", json.dumps(without_texts(evidence, "collectives"), indent=1)


def node_names(records: IncidentRecords) -> dict[str, str]:
    """Return the nodes of the generation that the incident ended, as id → name."""
    ended = records.incident.data.get("generation")
    ranks = [rank for generation in records.generations if generation.number == ended for rank in generation.ranks]
    names = {rank["node_id"]: rank["node_name"] for rank in ranks}
    missing = records.incident.data.get("evidence_missing") or {}
    return names | {name: name for name in missing if name not in names.values()}


def without_texts(evidence: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return a node's evidence without the texts and these other fields of each rank."""
    excluded = (*_TEXTS, *others)
    ranks = {
        rank: {key: entry[key] for key in entry if key not in excluded} for rank, entry in evidence["ranks"].items()
    }
    return {**evidence, "ranks": ranks}


def _add_files(archive: zipfile.ZipFile, files: Iterator[tuple[str, str]]) -> None:
    for name, text in files:
        archive.writestr(name, text)


def _read(uri: str) -> dict[str, Any]:
    from fsspec.core import url_to_fs  # imported late: it also imports the storage's package

    fs, path = url_to_fs(checked_uri(uri))
    return json.loads(fs.cat_file(path))


class _Stream(io.RawIOBase):
    """Output of a zip that the caller reads in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def read_pieces(self) -> bytes:
        """Return the bytes that were written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
