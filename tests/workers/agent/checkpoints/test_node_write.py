"""A node writes what has changed since the former checkpoint, and uses the files of the former for the rest."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.checkpoints.node_write import NodeWrite
from regroup.workers.contract.checkpoint_manifest import Pieces
from regroup.workers.contract.storage_progress import StorageProgress
from regroup.workers.storage.byte_meter import ByteMeter
from regroup.workers.storage.crc32 import combine
from tests.support.inputs.node_shards import FACTS, NodeShards

NOTHING = Pieces({}, ())
SIZES = [9 << 20, 500_000, 40_000, 10]


def write(
    shards: NodeShards, folder: Path, former: Pieces = NOTHING, base: str = "", device: str = "", **more: Any
) -> NodeWrite:
    arguments = (str(folder), shards.plan(), shards.ranks, shards.buffers(), shards.containers(), former, base, device)
    return NodeWrite(*arguments, **more)


def values_in(folder: Path, pieces: Pieces) -> dict[tuple[int, str], bytes]:
    """Return the values of all pieces as the files have them."""
    found: dict[tuple[int, str], bytes] = {}
    for piece in pieces.pieces:
        content = (folder / piece.file).read_bytes()
        found[int(piece.offset[0] > 0), piece.name] = content[piece.data_start : piece.data_start + piece.nbytes]
    return found


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_chain_of_checkpoints_writes_only_changes(tmp_path: Path) -> None:
    shards = NodeShards([0, 1], SIZES)
    one, two, three = (tmp_path / f"step-{step}.gen-1" for step in (1, 2, 3))
    first = write(shards, one).run()
    assert values_in(one, first) == shards.values
    shards.values[0, "w1"] = os.urandom(SIZES[1])
    shards.values[1, "w3"] = os.urandom(SIZES[3])
    again = write(shards, two, first, one.name)
    second = again.run()
    assert again.reuses and values_in(two, second) == shards.values
    assert size_of(two) <= 0.15 * size_of(one)
    assert {name for name in second.files if name.startswith("../")} == {
        "../step-1.gen-1/__0_0.distcp",
        "../step-1.gen-1/__1_0.distcp",
    }
    third = write(shards, three, second, two.name).run()
    assert values_in(three, third) == shards.values
    assert {path.name for path in three.iterdir()} == {"facts-0.json", "facts-1.json"}, "nothing has changed"
    assert not any("step-2.gen-1/../" in name for name in third.files)


def test_chunks_and_files_are_described_as_they_are(tmp_path: Path) -> None:
    found = write(NodeShards([0, 1], SIZES), tmp_path / "step-1.gen-1").run()

    for name, file in found.files.items():
        content = (tmp_path / "step-1.gen-1" / name).read_bytes()
        sizes = [min(8 << 20, len(content) - at) for at in range(0, len(content), 8 << 20)]
        assert file.size_bytes == len(content)
        assert combine(file.crcs, sizes) == zlib.crc32(content)
    assert json.loads((tmp_path / "step-1.gen-1" / "facts-0.json").read_bytes()) == json.loads(FACTS)


def test_a_state_that_trains_in_all_parts_uses_no_older_file(tmp_path: Path) -> None:
    shards = NodeShards([0, 1], SIZES)
    first = write(shards, tmp_path / "step-1.gen-1").run()
    again = write(NodeShards([0, 1], SIZES), tmp_path / "step-2.gen-1", first, "step-1.gen-1")
    assert not any(name.startswith("../") for name in again.run().files)
    assert not again.reuses


def test_a_piece_that_changes_at_each_save_is_hashed_again_when_it_no_longer_does(tmp_path: Path) -> None:
    shards = NodeShards([0], SIZES)
    pieces, changed, base = NOTHING, frozenset[tuple[object, ...]](), ""
    digests: list[list[bool]] = []
    for step in range(1, 7):
        if step <= 4:
            shards.values[0, "w1"] = os.urandom(SIZES[1])  # freezes after the fourth save
        saving = write(shards, tmp_path / f"step-{step}.gen-1", pieces, base, trained=changed)
        pieces, base = saving.run(), f"step-{step}.gen-1"
        changed = saving.changed
        assert values_in(tmp_path / base, pieces) == shards.values
        digests.append([bool(piece.digest) for piece in sorted(pieces.pieces, key=lambda each: each.name)])
    hashed = [True] * 4
    assert digests == [hashed, hashed, [True, False, True, True], [True, False, True, True], hashed, hashed]
    assert {path.name for path in (tmp_path / "step-6.gen-1").iterdir()} == {"facts-0.json"}, "nothing has changed"


def test_a_restarted_agent_does_not_hash_what_its_predecessor_no_longer_hashed(tmp_path: Path) -> None:
    pieces, changed, base = NOTHING, frozenset[tuple[object, ...]](), ""
    for step in range(1, 5):
        if step == 4:
            changed = frozenset()  # the memory of the agent is lost
        saving = write(NodeShards([0], SIZES), tmp_path / f"step-{step}.gen-1", pieces, base, trained=changed)
        pieces, base = saving.run(), f"step-{step}.gen-1"
        changed = saving.changed
    assert not any(piece.digest for piece in pieces.pieces)


def test_damaged_snapshots_are_named_and_each_one_is_read_once(tmp_path: Path) -> None:
    shards, read = NodeShards([4, 7], SIZES), list[bytes]()

    def verify(fd: int) -> bool:
        values = os.pread(fd, SIZES[0], 128)
        read.append(values)
        return values != shards.values[7, "w0"]

    saving = write(shards, tmp_path / "step-1.gen-1", verify=verify)
    saving.run()
    saving.run()
    assert saving.damaged == [7]
    assert len(read) == 2


def test_a_full_disk_leaves_nothing_and_a_second_attempt_completes(tmp_path: Path) -> None:
    shards = NodeShards([0, 1], SIZES)
    attempt = write(shards, tmp_path / "step-1.gen-1", device="/dev/full")
    with pytest.raises(OSError, match="No space left"):
        attempt.run()
    assert not list((tmp_path / "step-1.gen-1").glob(".*"))
    assert values_in(tmp_path / "step-1.gen-1", attempt.run()) == shards.values


def counted(meter: ByteMeter) -> tuple[int, int]:
    """Return the bytes so far and in all."""
    found = meter.progress()
    assert isinstance(found, StorageProgress)
    return found.done_bytes, found.total_bytes


def test_the_progress_counts_what_is_written_and_not_what_is_unchanged(tmp_path: Path) -> None:
    shards = NodeShards([0, 1], SIZES)
    one, two = (tmp_path / f"step-{step}.gen-1" for step in (1, 2))
    all_bytes, new_bytes = ByteMeter(), ByteMeter()
    assert all_bytes.progress() is None
    first = write(shards, one, meter=all_bytes).run()
    assert counted(all_bytes) == (size_of(one), size_of(one))
    shards.values[0, "w1"] = os.urandom(SIZES[1])
    write(shards, two, first, one.name, meter=new_bytes).run()
    assert counted(new_bytes) == (size_of(two), size_of(two)) and size_of(two) < 0.2 * size_of(one)


def test_after_a_full_disk_the_progress_is_that_of_the_complete_files(tmp_path: Path) -> None:
    meter = ByteMeter()
    attempt = write(NodeShards([0, 1], SIZES), folder := tmp_path / "step-1.gen-1", device="/dev/full", meter=meter)
    with pytest.raises(OSError, match="No space left"):
        attempt.run()
    done_bytes, total_bytes = counted(meter)
    assert done_bytes == size_of(folder) < total_bytes
    attempt.run()
    assert counted(meter) == (size_of(folder), total_bytes) == (total_bytes, total_bytes)
