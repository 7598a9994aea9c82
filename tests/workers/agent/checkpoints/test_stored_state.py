"""A node plans from the list of pieces, without torch, and reads exactly the parts that its ranks need."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.checkpoints.chunk_reader import ChunkReader
from regroup.workers.agent.checkpoints.node_write import NodeWrite
from regroup.workers.agent.checkpoints.stored_state import open_checkpoint
from regroup.workers.agent.slices.saved_state import SavedState, SliceRead
from regroup.workers.contract.checkpoint_manifest import PIECES, Pieces
from regroup.workers.state.slices.box_table import BoxTable, TensorBox
from regroup.workers.state.slices.boxes import Box
from regroup.workers.state.slices.planner import plan_transfers
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from tests.support.inputs.node_shards import NodeShards

SIZES = [9 << 20, 70_000, 10]


def written(folder: Path, shards: NodeShards, former: Pieces | None = None, base: str = "") -> Pieces:
    """Write a checkpoint of a node with its manifest."""
    files = (shards.plan(), shards.ranks, shards.buffers(), shards.containers())
    pieces = NodeWrite(str(folder), *files, former or Pieces({}, ()), base).run()
    (folder / PIECES).write_bytes(pieces.packed())
    entries: list[dict[str, Any]] = []
    for name in (*pieces.files, PIECES):
        data = (folder / name).read_bytes()
        entries.append({"name": name, "size_bytes": len(data), "crc32": zlib.crc32(data)})
    (folder / "manifest.json").write_text(json.dumps({"files": entries}))
    return pieces


async def read(state: SavedState, needed: dict[int, BoxTable], sizes: dict[int, int]) -> dict[int, bytearray]:
    """Read the parts that ranks need."""
    plan = plan_transfers(state.held, needed, near=state.near)
    memory = {rank: bytearray(size) for rank, size in sizes.items()}
    reads: dict[Any, list[SliceRead]] = {}
    for each in plan.fetches():
        reads.setdefault(each.holder, []).append(SliceRead(each.source, memoryview(memory[each.rank]), each.target))
    for holder, some in reads.items():
        await state.reader.read(holder, some)
    return memory


async def test_other_ranks_read_their_parts_of_files_of_two_checkpoints(tmp_path: Path) -> None:
    shards = NodeShards([0, 1], SIZES)
    first = written(tmp_path / "step-4.gen-1", shards)
    shards.values[1, "w1"] = bytes(SIZES[1])
    written(tmp_path / "step-8.gen-1", shards, first, "step-4.gen-1")
    counted: list[int] = []
    state = open_checkpoint(str(tmp_path / "step-8.gen-1"), [0, 1, 2], 3, counted.append)
    assert state.held.tensors() == {f"w{n}": ("uint8", (2 * size,)) for n, size in enumerate(SIZES)}
    assert (state.world_size, state.layout_hash, set(state.facts)) == (2, "h", {0})
    whole = {n: shards.values[0, f"w{n}"] + shards.values[1, f"w{n}"] for n in range(3)}
    needed: dict[int, BoxTable] = {}
    parts: dict[int, dict[int, tuple[int, int, int]]] = {}
    sizes = dict.fromkeys(range(3), 0)
    for rank in range(3):
        rows: list[tuple[str, TensorBox, int]] = []
        for n, size in enumerate(SIZES):
            start, stop = 2 * size * rank // 3, 2 * size * (rank + 1) // 3
            parts.setdefault(rank, {})[n] = (sizes[rank], start, stop)
            box = TensorBox("uint8", 1, (2 * size,), Box((start,), (stop - start,)))
            rows.append((f"w{n}", box, sizes[rank]))
            sizes[rank] += stop - start
        needed[rank] = BoxTable.of(rows)
    memory = await read(state, needed, sizes)
    for rank, of_rank in parts.items():
        for n, (at, start, stop) in of_rank.items():
            assert memory[rank][at : at + stop - start] == whole[n][start:stop]
    assert sum(counted) <= 1.05 * 2 * sum(SIZES), "each chunk was read once"


def test_the_same_ranks_get_their_own_facts(tmp_path: Path) -> None:
    written(tmp_path, NodeShards([0, 1], [10]))
    assert set(open_checkpoint(str(tmp_path), [1], 2).facts) == {0, 1}


def test_ranks_read_what_they_wrote_in_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead: list[tuple[str, int, int]] = []
    monkeypatch.setattr(ChunkReader, "read_ahead", lambda _, parts: ahead.extend(parts))
    shards = NodeShards([0, 1], SIZES)
    first = written(tmp_path / "step-4.gen-1", shards)
    shards.values[1, "w1"] = bytes(SIZES[1])
    second = written(tmp_path / "step-8.gen-1", shards, first, "step-4.gen-1")
    uri = str(tmp_path / "step-8.gen-1")
    open_checkpoint(uri, [0, 1, 2], 3).close()
    assert not ahead, "other ranks need other parts"
    open_checkpoint(uri, [1], 2).close()
    own = [piece for piece in second.pieces if piece.file.endswith("__1_0.distcp")]
    assert {name for name, _, _ in ahead} == {piece.file for piece in own} == {
        "__1_0.distcp", "../step-4.gen-1/__1_0.distcp",
    }  # fmt: skip
    for piece in own:
        assert any(
            name == piece.file and start <= piece.start and piece.start + piece.length <= start + size_bytes
            for name, start, size_bytes in ahead
        )
    needed = sum(piece.length for piece in own)
    assert needed <= sum(size_bytes for _, _, size_bytes in ahead) < needed + 200_000, "not all of the older file"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("__1_0.distcp", b"stale", r"__1_0\.distcp is named in the manifest but missing, or .* its size is wrong"),
        ("__1_0.distcp", None, r"__1_0\.distcp is named in the manifest but missing"),
        ("facts-0.json", None, r"facts-0\.json is named in the manifest but missing"),
        ("pieces.json.zz", b"", r"pieces\.json\.zz is damaged"),
        ("manifest.json", b'{"files": [', r"manifest\.json is damaged"),
        ("manifest.json", b"[]", r"manifest\.json is damaged"),
        ("manifest.json", None, "was never finished"),
    ],
)
def test_an_incomplete_checkpoint_is_refused_with_the_name_of_the_file(
    tmp_path: Path, file: str, content: bytes | None, words: str
) -> None:
    folder = tmp_path / "step-4.gen-1"
    written(folder, NodeShards([0, 1], [10]))
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(StorageError, match=words):
        open_checkpoint(str(folder), [0], 2)


def test_a_checkpoint_survives_an_outage_of_storage(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    uri = str(root / "step-4.gen-1")
    written(root / "step-4.gen-1", NodeShards([0, 1], [10]))
    away = root.rename(tmp_path / "away")
    with pytest.raises(StorageUnavailable, match=uri):
        open_checkpoint(uri, [0], 2)
    root.touch()  # another file has the name of the folder
    with pytest.raises(StorageUnavailable, match="NotADirectoryError"):
        open_checkpoint(uri, [0], 2)
    root.unlink()
    away.rename(root)
    assert open_checkpoint(uri, [0], 2).world_size == 2


def test_a_damaged_checkpoint_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "step-4.gen-1"
    written(folder, NodeShards([0, 1], [10]))
    (folder / "facts-0.json").write_text("{}")
    with pytest.raises(StorageError, match=r"facts-0\.json is damaged"):
        open_checkpoint(str(folder), [0], 2)
    (folder / "manifest.json").unlink()
    with pytest.raises(StorageError, match="never finished"):
        open_checkpoint(str(folder), [0], 2)
    tmp_path.rename(tmp_path.with_name("away"))
    with pytest.raises(StorageUnavailable):
        open_checkpoint(str(folder), [0], 2)
