"""Findings of the evidence of an incident: its files, the places of the ranks, the outliers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regroup.service.domain.errors import NotFoundError
from regroup.service.operations.evidence import (
    IncidentRecords,
    document_files,
    node_files,
    node_names,
    read_node,
    without_texts,
)
from regroup.service.operations.evidence_summary import summary_text
from regroup.service.operations.story.placements import to_ranges
from regroup.service.operations.story.stack_groups import StackGroup, group_stacks
from regroup.service.policy.detection.desync import describe_newest, find_desync, find_missing_ranks

_SUMMARY = "summary.txt"
_MAX_PARALLEL = 8
_MAX_MESSAGE = 300


@dataclass(frozen=True)
class RankFinding:
    """Evidence about one rank."""

    rank: int
    node: str
    step: int
    phase: str
    stalled_s: float
    """Seconds without progress."""
    end: str
    """Exit code, signal or error; empty if it ran until the recovery ended it."""
    last_collective: str
    """Newest collective; empty if the rank was not inspected."""
    is_outlier: bool


@dataclass(frozen=True)
class Findings:
    """The evidence of an incident in short."""

    files: Mapping[str, int]
    """Name → size in bytes."""
    summary: str
    """Text of `summary.txt`."""
    verdict: str
    """The finding in one or two sentences; empty without one."""
    ranks: Sequence[RankFinding]
    stacks: Sequence[StackGroup]
    missing: Mapping[str, str]
    """Node → reason why its evidence is missing."""


@dataclass(frozen=True)
class FilePart:
    """A part of one file of the evidence."""

    file: str
    text: str
    offset: int
    next_offset: int
    """Offset of the next part; the size of the file at its end."""
    size_bytes: int


async def find_findings(records: IncidentRecords) -> Findings:
    """Read the evidence of an incident, and return what it shows."""
    nodes, missing = await _read_nodes(records)
    return await asyncio.to_thread(examine, records, nodes, missing)


async def read_file(records: IncidentRecords, file: str, offset: int, limit: int) -> FilePart:
    """Return a part of a file of the evidence.

    Raises:
        NotFoundError: the evidence has no such file.
    """
    nodes, missing = await _read_nodes(records)
    names: list[str] = []
    for name, text in _files(records, nodes, missing):
        names.append(name)
        if name == file:
            data = text.encode(errors="replace")
            part = data[offset : offset + limit]
            shown = part.decode(errors="replace")
            return FilePart(file, shown, offset, min(len(data), offset + len(part)), len(data))
    raise NotFoundError(f"the evidence has no file {file!r}; files: {', '.join(sorted(names)[:50])}")


def examine(records: IncidentRecords, nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, str]) -> Findings:
    """Return what the evidence of nodes shows. Pure."""
    entries = {int(rank): (node, entry) for node in nodes for rank, entry in node["ranks"].items()}
    texts = {rank: entry["stacks"] for rank, (_, entry) in entries.items() if entry.get("stacks")}
    rank_at_fault = records.incident.data.get("rank")
    outliers = _outliers(records.incident.data.get("evidence"))
    stacks = group_stacks(texts, outliers or ([] if rank_at_fault is None else [rank_at_fault]))
    different = {rank for group in stacks if group.is_outlier for rank in group.ranks} or set(outliers)
    if rank_at_fault is not None:
        different = different or {rank_at_fault}
    return Findings(
        files={name: len(text.encode(errors="replace")) for name, text in _files(records, nodes, missing)},
        summary=_summary(records, nodes, missing),
        verdict=" ".join(_verdicts(entries, stacks)),
        ranks=[_rank(rank, *entries[rank], rank in different) for rank in sorted(entries)],
        stacks=stacks,
        missing=missing,
    )


async def _read_nodes(records: IncidentRecords) -> tuple[list[dict[str, Any]], dict[str, str]]:
    names, slots = node_names(records), asyncio.Semaphore(_MAX_PARALLEL)

    async def read(node_id: str, name: str) -> dict[str, Any] | str:
        async with slots:
            return await read_node(records, node_id, name)

    found = await asyncio.gather(*(read(*node) for node in names.items()))
    nodes = [each for each in found if not isinstance(each, str)]
    missing = {name: each for name, each in zip(names.values(), found, strict=True) if isinstance(each, str)}
    return nodes, missing


def _files(
    records: IncidentRecords, nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    yield _SUMMARY, _summary(records, nodes, missing)
    for node in nodes:
        yield from node_files(node)
    yield from document_files(records)


def _summary(records: IncidentRecords, nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, str]) -> str:
    return summary_text(records.number, records.incident.data, [without_texts(node) for node in nodes], missing)


def _outliers(evidence: Any) -> list[int]:
    found = evidence.get("outlier_ranks") if isinstance(evidence, Mapping) else None
    return [int(rank) for rank in found or ()]


def _rank(rank: int, node: Mapping[str, Any], entry: Mapping[str, Any], is_outlier: bool) -> RankFinding:
    was_inspected = entry.get("was_inspected") or entry.get("collectives")
    return RankFinding(
        rank=rank,
        node=str(node["node"]),
        step=int(entry["step"]),
        phase=str(entry["phase"]),
        stalled_s=float(entry["stalled_s"]),
        end=_end(entry),
        last_collective=describe_newest(entry.get("collectives")) if was_inspected else "",
        is_outlier=is_outlier,
    )


def _end(entry: Mapping[str, Any]) -> str:
    code, error = entry.get("exit_code"), entry.get("error")
    parts: list[str] = []
    if code is not None:
        parts.append(f"killed by signal {-code}" if code < 0 else f"exited with code {code}")
    if error:
        parts.append(f"{error['kind']}: {str(error['message']).partition(chr(10))[0][:_MAX_MESSAGE]}")
    return "; ".join(parts)


def _verdicts(
    entries: Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]], stacks: Sequence[StackGroup]
) -> Iterator[str]:
    entered = {rank: entry.get("collectives") for rank, (_, entry) in entries.items()}
    for found in (find_desync(entered), find_missing_ranks(entered)):
        if found is not None:
            yield f"{found.summary[:1].upper()}{found.summary[1:]}."
    outliers = [group for group in stacks if group.is_outlier]
    rest = [group for group in stacks if not group.is_outlier]
    if outliers and rest:
        usual = max(rest, key=lambda group: len(group.ranks))
        for group in outliers[:3]:
            yield f"{_ranks(group)} in {group.place or 'another place'}, {_ranks(usual).lower()} in {usual.place}."


def _ranks(group: StackGroup) -> str:
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in to_ranges(group.ranks))
    return f"Rank {text} is" if len(group.ranks) == 1 else f"Ranks {text} are"
