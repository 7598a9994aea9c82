"""One node's part of a checkpoint: compare it with the former one, and write what has changed. Blocking."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from regroup.workers.agent.checkpoints.composition import compose
from regroup.workers.agent.checkpoints.reuse import (
    BoxKey,
    digest_of,
    find_changed,
    find_unchanged,
    heads_of,
    worth_reusing,
)
from regroup.workers.contract.checkpoint_manifest import FileChunks, Piece, Pieces, beside
from regroup.workers.contract.planned_shards import PlannedShards
from regroup.workers.storage.byte_meter import ByteMeter
from regroup.workers.storage.parallel_write import ParallelWrite


class NodeWrite:
    """Writes the shards of some ranks. `run` may be called again after an error."""

    def __init__(
        self,
        uri: str,
        plan: PlannedShards,
        ranks: Sequence[int],
        buffers: Sequence[int],
        containers: int,
        former: Pieces,
        folder: str,
        device: str = "",
        meter: ByteMeter | None = None,
        trained: Collection[BoxKey] = (),
        verify: Callable[[int], bool] = lambda fd: True,
    ) -> None:
        """Initialize without reading the snapshots.

        Args:
            uri: Folder of the checkpoint.
            plan: Files of these ranks.
            ranks: Ranks in the order of the plan.
            buffers: Descriptors of their snapshots.
            containers: Descriptor of the file of containers.
            former: Pieces of the former checkpoint, whose folder has the same parent as that of this one.
            folder: Name of its folder.
            device: Device that gets the end of the largest file, for a planned fault.
            meter: Counts what is written.
            trained: Pieces that had changed when the former checkpoint was written, in addition to those that have no
                digest in it. Those that have changed again get no digest: hashing takes longer than writing, and the
                next checkpoint will not have them either.
            verify: Reads a snapshot and returns whether it is intact. Threads call it while others wait for the disk.
        """
        self.damaged = list[int]()
        """Ranks whose snapshots are not intact, after `run`. The files have wrong values then."""
        self.changed = frozenset[BoxKey]()
        """Pieces that have changed since the former checkpoint, after `run`."""
        self._trained = frozenset(trained) | {piece.box for piece in former.pieces if not piece.digest}
        self.reuses = False
        """True if files of the former checkpoint are used."""
        self._uri, self._device, self._meter = uri, device, meter or ByteMeter()
        self._plan, self._ranks, self._buffers, self._containers = plan, ranks, buffers, containers
        self._former = [replace(piece, file=beside(piece.file, folder)) for piece in former.pieces]
        self._files = {beside(name, folder): file for name, file in former.files.items()}
        self._write: ParallelWrite | None = None
        self._pieces: dict[Piece, tuple[int, int, int]] = {}
        self._verify, self._unread = verify, dict(zip(ranks, buffers, strict=True))
        self._kept: list[Piece] = []
        self._digests: dict[Piece, str] = {}

    def run(self) -> Pieces:
        """Write the pieces that have changed, and return the files and pieces of these ranks.

        Raises:
            OSError, StorageError: Storage refused, or a snapshot is too short.
        """
        if self._write is None:
            self._write = self._prepare()
        hashed = [piece for piece in self._pieces if piece.box not in self._trained & self.changed]
        missing = [piece for piece in hashed if piece not in self._digests]
        checks = [lambda rank=rank: self._check(rank) for rank in self._unread]
        written = self._write.run([*checks, *(lambda piece=piece: self._digest(piece) for piece in missing)])
        files = {file.name: FileChunks(file.size_bytes, file.crcs) for file in written}
        files |= {piece.file: self._files[piece.file] for piece in self._kept}
        new = [replace(piece, digest=self._digests.get(piece, "")) for piece in self._pieces]
        return Pieces(files, (*new, *self._kept))

    def _prepare(self) -> ParallelWrite:
        memory = {
            piece: buffer for buffer, file in zip(self._buffers, self._plan.files, strict=True) for piece in file.pieces
        }
        heads = heads_of(memory)
        self.changed = find_changed(heads, self._former)
        unchanged = find_unchanged(memory, heads, self._former)
        reused = worth_reusing(unchanged, lambda name: self._files[name].size_bytes)
        self.reuses, self._kept = bool(reused), list(reused.values())
        drafts, self._pieces = compose(self._plan, self._ranks, self._buffers, self._containers, heads, reused)
        self._meter.expect(sum(draft.size_bytes for draft in drafts))
        return ParallelWrite(self._uri, drafts, count=self._meter.count, device=self._device)

    def _check(self, rank: int) -> None:
        if not self._verify(self._unread[rank]):
            self.damaged.append(rank)
        del self._unread[rank]  # a second attempt does not read it again

    def _digest(self, piece: Piece) -> None:
        self._digests[piece] = digest_of(*self._pieces[piece])
