"""Compose the files of a checkpoint from containers and the bytes of snapshots. Pure, apart from reading them."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regroup.workers.contract.checkpoint_manifest import Piece, facts_name, shard_name
from regroup.workers.contract.planned_shards import PlannedPiece, PlannedShards
from regroup.workers.storage.fsspec_storage import StorageError
from regroup.workers.storage.parallel_write import Draft


@dataclass(frozen=True)
class Segment:
    """Consecutive bytes of a file, and where they are in memory."""

    start: int
    """First byte in the file."""
    nbytes: int
    fd: int
    """Memory file that has the bytes."""
    source: int
    """First byte there."""


class ComposedFile:
    """A file that is composed of segments while it is read."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = [each for each in segments if each.nbytes]
        self._starts = [each.start for each in self._segments]
        self.size_bytes = self._segments[-1].start + self._segments[-1].nbytes if self._segments else 0

    def read(self, start: int, into: memoryview) -> None:
        """Fill `into` with the bytes of the file from `start` on. Threads may call it at the same time.

        Raises:
            StorageError: A memory file has become shorter.
        """
        number, done = bisect_right(self._starts, start) - 1, 0
        while done < len(into):
            segment = self._segments[number]
            skipped = start + done - segment.start
            length = min(segment.nbytes - skipped, len(into) - done)
            read_exactly(segment.fd, segment.source + skipped, into[done : done + length])
            number, done = number + 1, done + length


def read_exactly(fd: int, start: int, into: memoryview) -> None:
    """Fill `into` from a memory file.

    It does not map the file: the job could shorten it, which would end a process that has it mapped.

    Raises:
        StorageError: The file is shorter.
    """
    done = 0
    while done < len(into):
        count = os.preadv(fd, [into[done:]], start + done)
        if not count:
            raise StorageError(f"a snapshot ends at byte {start + done}, {len(into) - done} bytes too early")
        done += count


def compose(
    plan: PlannedShards,
    ranks: Sequence[int],
    buffers: Sequence[int],
    containers: int,
    heads: Mapping[PlannedPiece, int],
    reused: Mapping[PlannedPiece, Piece],
) -> tuple[list[Draft], dict[Piece, tuple[int, int, int]]]:
    """Return the files of a node, and each new piece with its digest still empty → descriptor, start and length.

    Args:
        plan: The files of these ranks.
        ranks: Ranks in the order of the plan.
        buffers: Descriptors of their snapshots.
        containers: Descriptor of the file of containers.
        heads: CRC-32 of the first bytes of each piece.
        reused: Pieces that an older checkpoint has.
    """
    drafts: list[Draft] = []
    pieces: dict[Piece, tuple[int, int, int]] = {}
    for rank, buffer, planned in zip(ranks, buffers, plan.files, strict=True):
        start, length = planned.facts
        drafts.append(_draft(facts_name(rank), [Segment(0, length, containers, start)]))
        segments: list[Segment] = []
        at = 0
        for each in planned.pieces:
            if each in reused:
                continue
            around = plan.containers[each.container]
            before, after = around.before_bytes, around.nbytes - around.before_bytes
            data, end = at + before, at + before + each.nbytes
            segments += [
                Segment(at, before, containers, around.start),
                Segment(data, each.nbytes, buffer, each.start),
                Segment(end, after, containers, around.start + before),
            ]
            box = (each.name, each.dtype, each.global_shape, each.offset, each.shape)
            place = (shard_name(rank), at, end + after - at, data, each.nbytes)
            pieces[Piece(*box, *place, heads[each], "")] = (buffer, each.start, each.nbytes)
            at = end + after
        if segments:
            drafts.append(_draft(shard_name(rank), segments))
    return drafts, pieces


def _draft(name: str, segments: Sequence[Segment]) -> Draft:
    file = ComposedFile(segments)
    return Draft(name, file.size_bytes, file.read)
