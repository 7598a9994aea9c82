"""Files are composed of containers and the bytes of snapshots, from any position on."""

import os

import pytest

from regroup.workers.agent.checkpoints.composition import ComposedFile, Segment, compose, read_exactly
from regroup.workers.storage.fsspec_storage import StorageError
from tests.support.inputs.node_shards import AFTER, BEFORE, FACTS, NodeShards


def memory(data: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, data)
    return fd


def test_each_part_of_a_file_is_read_from_its_segments() -> None:
    one, two = memory(b"0123456789"), memory(b"abcdef")
    file = ComposedFile([Segment(0, 3, one, 2), Segment(3, 0, one, 0), Segment(3, 4, two, 1), Segment(7, 2, one, 0)])
    whole = b"234bcde01"
    assert file.size_bytes == len(whole)
    for start in range(len(whole)):
        for stop in range(start, len(whole) + 1):
            into = bytearray(stop - start)
            file.read(start, memoryview(into))
            assert into == whole[start:stop]


def test_a_snapshot_that_was_shortened_is_an_error_and_no_signal() -> None:
    with pytest.raises(StorageError, match="ends at byte 4, 2 bytes too early"):
        read_exactly(memory(b"0123"), 1, memoryview(bytearray(5)))


def test_pieces_name_the_place_of_their_container_and_of_their_values() -> None:
    shards = NodeShards([0, 1], [10, 20])
    plan, buffers = shards.plan(), shards.buffers()
    heads = {piece: 1 for file in plan.files for piece in file.pieces}
    drafts, pieces = compose(plan, shards.ranks, buffers, shards.containers(), heads, {})
    files: dict[str, bytes] = {}
    for draft in drafts:
        content = bytearray(draft.size_bytes)
        draft.read(0, memoryview(content))
        files[draft.name] = bytes(content)
    assert sorted(files) == ["__0_0.distcp", "__1_0.distcp", "facts-0.json", "facts-1.json"]
    assert files["facts-1.json"] == FACTS
    assert len(pieces) == 4
    for piece, (buffer, start, nbytes) in pieces.items():
        values = shards.values[int(piece.file[2]), piece.name]
        assert os.pread(buffer, nbytes, start) == values
        assert files[piece.file][piece.data_start : piece.data_start + piece.nbytes] == values
        container = files[piece.file][piece.start : piece.start + piece.length]
        assert container == BEFORE + values + AFTER


def test_reused_pieces_take_no_bytes_and_a_rank_without_new_ones_has_no_file() -> None:
    shards = NodeShards([0, 1], [10, 20])
    plan = shards.plan()
    heads = {piece: 1 for file in plan.files for piece in file.pieces}
    _, pieces = compose(plan, shards.ranks, shards.buffers(), shards.containers(), heads, {})
    older = dict(zip(heads, pieces, strict=True))
    reused = {planned: piece for planned, piece in older.items() if piece.file == "__1_0.distcp" or piece.name == "w0"}
    drafts, new = compose(plan, shards.ranks, shards.buffers(), shards.containers(), heads, reused)
    assert {draft.name: draft.size_bytes for draft in drafts} == {
        "facts-0.json": len(FACTS),
        "facts-1.json": len(FACTS),
        "__0_0.distcp": len(BEFORE) + 20 + len(AFTER),
    }
    assert [(piece.name, piece.file, piece.start) for piece in new] == [("w1", "__0_0.distcp", 0)]
