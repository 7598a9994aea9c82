"""What a node reads from durable storage is whole, or refused by name; what ranks wrote is left there."""

import json
import zlib
from pathlib import Path

import pytest

from regroup.workers.agent.checkpoints import CheckpointSaver
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable


@pytest.fixture
def saving(tmp_path: Path) -> CheckpointSaver:
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


def test_a_checkpoint_is_fetched_whole(saving: CheckpointSaver, checkpoint: Path) -> None:
    assert (saving.fetch(str(checkpoint)) / "shard").read_bytes() == b"state"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("shard", b"stale", "shard is damaged"),
        ("shard", None, "shard is named in the manifest but missing"),
        ("manifest.json", b'{"files": [', r"manifest\.json is damaged"),
        ("manifest.json", b"[]", r"manifest\.json is damaged"),
        ("manifest.json", None, "was never finished"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(
    saving: CheckpointSaver, checkpoint: Path, file: str, content: bytes | None, words: str
) -> None:
    if content is None:
        (checkpoint / file).unlink()
    else:
        (checkpoint / file).write_bytes(content)
    with pytest.raises(StorageError, match=words):
        saving.fetch(str(checkpoint))


def test_storage_that_is_away_says_nothing_against_a_checkpoint(saving: CheckpointSaver, checkpoint: Path) -> None:
    uri, folder = str(checkpoint), checkpoint.parent
    away = folder.rename(folder.with_name("away"))
    with pytest.raises(StorageUnavailable, match=uri):
        saving.fetch(uri)
    folder.touch()  # something else is in the way, and the file system says so
    with pytest.raises(StorageUnavailable, match="NotADirectoryError"):
        saving.fetch(uri)
    folder.unlink()
    away.rename(folder)
    assert (saving.fetch(uri) / "shard").read_bytes() == b"state"


def test_a_scan_of_storage_that_is_away_is_not_empty(saving: CheckpointSaver, checkpoint: Path) -> None:
    storage = checkpoint.parent.parent
    assert [item["uri"] for item in saving.manifests().finished] == [f"file://{checkpoint}"]
    away = storage.rename(storage.with_name("away"))
    with pytest.raises(StorageUnavailable, match="storage"):
        saving.manifests()
    storage.mkdir()
    assert saving.manifests() == CheckpointScan(), "a job that has saved nothing"
    storage.rmdir()
    away.rename(storage)


def test_logs_of_this_job_alone_are_archived(saving: CheckpointSaver, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("regroup-t-job-g1-rank0.out", "regroup-t-other-g2-rank0.out"):
        (logs / name).write_text(name)
    (logs / "regroup-t-job-g1-rank0.err").touch()
    saving.archive_logs(logs, "regroup-t-job-")
    archived = {path.name: path.read_text() for path in (tmp_path / "storage" / "logs").iterdir()}
    assert archived == {"g1-rank0.out": "regroup-t-job-g1-rank0.out", "g1-rank0.err": ""}
