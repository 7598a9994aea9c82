"""A node reads only intact checkpoints from durable storage, and archives the output of ranks there."""

import json
import os
import zlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.checkpoints.folders import remove_checkpoint
from regroup.workers.agent.checkpoints.saver import CheckpointSaver, _check_files
from regroup.workers.agent.job_host import JobHost
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan, Manifest
from regroup.workers.contract.checkpoint_manifest import REMOVED, unpack_pieces
from regroup.workers.contract.codec import plain
from regroup.workers.contract.messages import Note
from regroup.workers.environment.redaction import Redactor
from regroup.workers.state.buffer_layout import BufferLayout, Entry
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from tests.workers.agent.test_job_host import Node, config


@pytest.fixture
def saver(tmp_path: Path) -> CheckpointSaver:
    storage = f"file://{tmp_path}/storage"
    config = AgentConfig("job", "t", "n", "n", "127.0.0.1", "s", storage, f"{storage}/datasets")
    return CheckpointSaver(config, tmp_path / "scratch", BufferPool(), lambda kind, data: None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "storage" / "checkpoints" / "step-1.gen-1"
    folder.mkdir(parents=True)
    (folder / "shard").write_bytes(b"state")
    entry = {"name": "shard", "size_bytes": 5, "crc32": zlib.crc32(b"state")}
    (folder / "manifest.json").write_text(json.dumps({"files": [entry]}))
    return folder


def test_a_scan_during_an_outage_raises_instead_of_an_empty_result(saver: CheckpointSaver, checkpoint: Path) -> None:
    storage = checkpoint.parent.parent
    assert [item["uri"] for item in saver.scan().finished] == [f"file://{checkpoint}"]
    away = storage.rename(storage.with_name("away"))
    with pytest.raises(StorageUnavailable, match="storage"):
        saver.scan()
    storage.mkdir()
    assert saver.scan() == CheckpointScan(), "the job has no checkpoint"
    storage.rmdir()
    away.rename(storage)


def test_only_the_logs_of_this_job_are_archived(saver: CheckpointSaver, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("regroup-t-job-g1-rank0.out", "regroup-t-other-g2-rank0.out"):
        (logs / name).write_text(name)
    (logs / "regroup-t-job-g1-rank0.err").touch()
    saver.archive_logs(logs, "regroup-t-job-", Redactor())
    archived = {path.name: path.read_text() for path in (tmp_path / "storage" / "logs").iterdir()}
    assert archived == {"g1-rank0.out": "regroup-t-job-g1-rank0.out", "g1-rank0.err": ""}


def test_a_manifest_counts_only_if_every_file_of_it_is_seen(checkpoint: Path) -> None:
    (checkpoint / "deep").mkdir()
    (checkpoint / "deep" / "shard").write_bytes(b"123")
    mine = {"name": "shard", "size_bytes": 5}
    _check_files(f"file://{checkpoint}", [mine, {"name": "deep/shard", "size_bytes": 3}])
    for other in ({"name": "__2_0.distcp", "size_bytes": 5}, {"name": "deep/shard", "size_bytes": 4}):
        words = f"1 of 2 files of file://{checkpoint} are missing or incomplete here, for example {other['name']}"
        with pytest.raises(StorageError, match=words):
            _check_files(f"file://{checkpoint}", [mine, other])


# ------------------------------------------------------------------------------------- from memory to storage


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a real zygote."""
    made = Node(config(tmp_path, "node", log_dir=str(tmp_path), preload=("torch", "torch.distributed")))
    yield made
    await made.host.close()


def pin(host: JobHost, values: Mapping[int, bytes]) -> None:
    """Give the host complete snapshots of two ranks that are pinned for a checkpoint."""
    for rank, value in values.items():
        fd = os.memfd_create("test", os.MFD_CLOEXEC)
        buffer = ShardBuffer(os.dup(fd))
        size = len(value)
        layout = BufferLayout([Entry("w", "uint8", (2 * size,), (size * rank,), (size,), size)])
        place: dict[str, Any] = {"generation": 1, "step": 8, "rank": rank, "world_size": 2, "layout_hash": "h"}
        buffer.begin(layout, {"samples_digest": "d"}, **place)
        buffer.view(layout.entries[0])[:] = value
        buffer.commit(Pin.CHECKPOINT)
        buffer.close()
        host.buffers.install(rank, fd, os.fstat(fd).st_size)


async def save(host: JobHost, folder: Path, base: str = "") -> Manifest:
    """Save the pinned snapshots of step 8, as a supervisor does."""
    saved = await host.save_checkpoint(1, 8, [0, 1], f"file://{folder}", [], base)
    files = [plain(file) for file in saved.files]
    manifest = {"step": 8, "generation": 1, "files": files}
    return await host.finish_checkpoint(f"file://{folder}", [saved.part], manifest)


def values_in(folder: Path) -> dict[int, bytes]:
    """Return rank → its values in a checkpoint."""
    found: dict[int, bytes] = {}
    for piece in unpack_pieces((folder / "pieces.json.zz").read_bytes()).pieces:
        content = (folder / piece.file).read_bytes()
        found[int(piece.offset[0] > 0)] = content[piece.data_start : piece.data_start + piece.nbytes]
    return found


@pytest.fixture
def values() -> dict[int, bytes]:
    return {0: os.urandom(5000), 1: os.urandom(5000)}


async def test_a_checkpoint_goes_from_memory_to_storage(node: Node, tmp_path: Path, values: dict[int, bytes]) -> None:
    folder = tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    pin(node.host, values)
    assert node.host.checkpoints.progress() is None
    manifest = await save(node.host, folder)
    progress = node.host.checkpoints.progress()
    assert progress is not None and (progress.generation, progress.step) == (1, 8)
    parts = sum((folder / name).stat().st_size for name in ("__0_0.distcp", "__1_0.distcp"))
    assert parts < progress.progress.total_bytes == progress.progress.done_bytes < parts + 1000, "with the facts"
    names = {"__0_0.distcp", "__1_0.distcp", "facts-0.json", "facts-1.json", ".metadata", "pieces.json.zz"}
    assert {file["name"] for file in manifest["files"]} == names
    assert {path.name for path in folder.iterdir()} == {*names, "manifest.json"}
    for file in manifest["files"]:
        assert zlib.crc32((folder / file["name"]).read_bytes()) == file["crc32"]
    assert values_in(folder) == values
    with pytest.raises(LookupError, match="no pinned snapshot"):
        await save(node.host, folder)


async def test_a_checkpoint_with_a_damaged_snapshot_is_not_finished(
    node: Node, tmp_path: Path, values: dict[int, bytes]
) -> None:
    folder = tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    pin(node.host, values)
    (fd,) = node.host.buffers.pinned(1, 8, [1])
    buffer = ShardBuffer(os.dup(fd))
    buffer.view(buffer.index().tensors[0])[0] ^= 1
    buffer.close()
    with pytest.raises(StorageError, match=r"ranks \[1\] of step 8 fail their checksums"):
        await save(node.host, folder)
    assert not (folder / "manifest.json").exists()


async def test_an_unchanged_shard_is_not_written_again_and_outlives_the_older_checkpoint(
    node: Node, tmp_path: Path, values: dict[int, bytes]
) -> None:
    root = tmp_path / "storage" / "checkpoints"
    first, second = root / "step-4.gen-1", root / "step-8.gen-1"
    pin(node.host, values)
    await save(node.host, first)
    changed = {**values, 1: os.urandom(5000)}
    pin(node.host, changed)
    manifest = await save(node.host, second, f"file://{first}")
    names = {file["name"] for file in manifest["files"] if file["name"].endswith(".distcp")}
    assert names == {"../step-4.gen-1/__0_0.distcp", "__1_0.distcp"}
    assert values_in(second) == changed
    remove_checkpoint(f"file://{first}")
    assert {path.name for path in first.iterdir()} == {"__0_0.distcp", REMOVED}
    assert values_in(second) == changed
    remove_checkpoint(f"file://{second}")
    assert list(root.iterdir()) == []


async def test_a_checkpoint_is_withdrawn_if_the_one_that_it_uses_was_removed(
    node: Node, tmp_path: Path, values: dict[int, bytes]
) -> None:
    root = tmp_path / "storage" / "checkpoints"
    first, second = root / "step-4.gen-1", root / "step-8.gen-1"
    pin(node.host, values)
    await save(node.host, first)
    pin(node.host, values)
    saved = await node.host.save_checkpoint(1, 8, [0, 1], f"file://{second}", [], f"file://{first}")
    (first / "manifest.json").rename(first / REMOVED)  # the removal has begun, and its files are still there
    manifest = {"step": 8, "generation": 1, "files": [plain(file) for file in saved.files]}
    with pytest.raises(
        StorageError, match=r"step-4\.gen-1, whose unchanged pieces .* uses, was removed during the save"
    ):
        await node.host.finish_checkpoint(f"file://{second}", [saved.part], manifest)
    assert not (second / "manifest.json").exists()


async def test_a_disk_that_fills_during_a_write_costs_one_checkpoint(
    node: Node, tmp_path: Path, values: dict[int, bytes]
) -> None:
    folder = tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    pin(node.host, values)
    node.host.inject_fault("fill_disk")
    with pytest.raises(StorageError, match="No space left on device"):
        await save(node.host, folder)
    assert not list(folder.glob(".__*")) and not (folder / "manifest.json").exists()
    pin(node.host, values)
    await save(node.host, folder)
    assert values_in(folder) == values


async def test_an_error_of_the_disk_is_reported_and_the_write_is_repeated(
    node: Node, tmp_path: Path, values: dict[int, bytes]
) -> None:
    folder = tmp_path / "storage" / "checkpoints" / "step-8.gen-1"
    pin(node.host, values)
    node.host.inject_fault("break_disk")
    await save(node.host, folder)
    assert values_in(folder) == values
    reported, ended = [note.data["message"] for note in await node.wait_for(Note, 2)]
    assert "Input/output error" in reported and ended == ""
