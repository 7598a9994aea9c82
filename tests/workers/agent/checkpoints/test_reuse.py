"""Pieces count as unchanged only if all of their values are equal, and are reused if they are much of a file."""

import hashlib
import os

from regroup.workers.agent.checkpoints.composition import compose
from regroup.workers.agent.checkpoints.reuse import HEAD_BYTES, digest_of, find_unchanged, heads_of, worth_reusing
from regroup.workers.contract.checkpoint_manifest import Piece
from regroup.workers.contract.planned_shards import PlannedPiece
from tests.support.inputs.node_shards import NodeShards

SIZES = [100, 3 * HEAD_BYTES, 9 << 20]


def saved(shards: NodeShards) -> list[Piece]:
    """Return the pieces of a checkpoint of these shards."""
    _, pieces = compose(
        shards.plan(), shards.ranks, shards.buffers(), shards.containers(), heads_of(memory(shards)), {}
    )
    from dataclasses import replace

    return [replace(piece, digest=digest_of(*place)) for piece, place in pieces.items()]


def memory(shards: NodeShards) -> dict[PlannedPiece, int]:
    files = zip(shards.buffers(), shards.plan().files, strict=True)
    return {piece: buffer for buffer, file in files for piece in file.pieces}


def unchanged(shards: NodeShards, former: list[Piece]) -> list[tuple[int, str]]:
    present = memory(shards)
    return sorted((piece.offset[0] and 1, piece.name) for piece in find_unchanged(present, heads_of(present), former))


def test_the_digest_is_half_of_a_sha256() -> None:
    data = os.urandom(9 << 20)
    fd = os.memfd_create("test")
    with open(fd, "wb", closefd=False) as file:
        file.write(b"header" + data)
    assert digest_of(fd, 6, len(data)) == hashlib.sha256(data).hexdigest()[:32]
    assert digest_of(fd, 6, 0) == hashlib.sha256().hexdigest()[:32]


def test_a_change_at_the_end_of_a_piece_is_found() -> None:
    shards = NodeShards([0, 1], SIZES)
    former = saved(shards)
    assert len(unchanged(shards, former)) == 6
    for number, size in enumerate(SIZES):
        value = shards.values[1, f"w{number}"]
        shards.values[1, f"w{number}"] = value[: size - 1] + bytes([value[-1] ^ 1])
        assert unchanged(shards, former) == [
            (0, "w0"),
            (0, "w1"),
            (0, "w2"),
            *[(1, f"w{n}") for n in range(number + 1, 3)],
        ]


def test_equal_values_of_another_part_are_not_the_same_piece() -> None:
    shards = NodeShards([0, 1], [100])
    former = saved(shards)
    shards.values[0, "w0"], shards.values[1, "w0"] = shards.values[1, "w0"], shards.values[0, "w0"]
    assert unchanged(shards, former) == []
    assert unchanged(NodeShards([0], [50]), former) == []


def test_a_file_of_which_little_is_unchanged_is_written_again() -> None:
    shards = NodeShards([0, 1], [100, 900])
    planned, pieces = list(memory(shards)), saved(shards)
    both = dict(zip(planned, pieces, strict=True))
    small = {piece: before for piece, before in both.items() if before.name == "w0"}
    large = {piece: before for piece, before in both.items() if before.name == "w1"}
    sizes = {"__0_0.distcp": 1030, "__1_0.distcp": 1030}
    assert worth_reusing(small, sizes.__getitem__) == {}
    assert worth_reusing(large, sizes.__getitem__) == large
    assert worth_reusing(both, sizes.__getitem__) == both
