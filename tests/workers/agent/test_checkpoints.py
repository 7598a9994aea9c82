"""A node reads only intact checkpoints from durable storage, and archives the output of ranks there."""

import json
import zlib
from pathlib import Path

import pytest

from regroup.workers.agent.checkpoints import CheckpointSaver, _check_files
from regroup.workers.agent.snapshots.buffer_pool import BufferPool
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CheckpointScan
from regroup.workers.environment.redaction import Redactor
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable


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


def test_a_complete_checkpoint_is_fetched(saver: CheckpointSaver, checkpoint: Path) -> None:
    assert (saver.fetch(str(checkpoint)) / "shard").read_bytes() == b"state"


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
def test_a_damaged_checkpoint_is_refused_with_the_damaged_file(
    saver: CheckpointSaver, checkpoint: Path, file: str, content: bytes | None, words: str
) -> None:
    if content is None:
        (checkpoint / file).unlink()
    else:
        (checkpoint / file).write_bytes(content)
    with pytest.raises(StorageError, match=words):
        saver.fetch(str(checkpoint))


def test_a_checkpoint_survives_an_outage_of_storage(saver: CheckpointSaver, checkpoint: Path) -> None:
    uri, folder = str(checkpoint), checkpoint.parent
    away = folder.rename(folder.with_name("away"))
    with pytest.raises(StorageUnavailable, match=uri):
        saver.fetch(uri)
    folder.touch()  # another file has the name of the folder
    with pytest.raises(StorageUnavailable, match="NotADirectoryError"):
        saver.fetch(uri)
    folder.unlink()
    away.rename(folder)
    assert (saver.fetch(uri) / "shard").read_bytes() == b"state"


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
