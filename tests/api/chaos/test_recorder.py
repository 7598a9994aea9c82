"""A checkpoint is loadable only if every file of its manifest is intact."""

import json
import zlib
from pathlib import Path

import pytest

from regroup.api.chaos import local_faults
from regroup.api.chaos.recorder import list_loadable_checkpoints
from regroup.service.domain.errors import ConflictError


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    for step in (8, 16):
        folder = tmp_path / f"checkpoints/step-{step}.gen-1"
        folder.mkdir(parents=True)
        files = {"shard-0": bytes(range(256)) * 20, "facts-0.json": b"{}"}
        for name, data in files.items():
            (folder / name).write_bytes(data)
        entries = [{"name": name, "size_bytes": len(data), "crc32": zlib.crc32(data)} for name, data in files.items()]
        (folder / "manifest.json").write_text(json.dumps({"files": entries}))
    return tmp_path


@pytest.mark.parametrize("harm", [local_faults.flip_byte, local_faults.truncate, local_faults.delete_shard])
def test_a_damaged_checkpoint_is_not_loadable(storage: Path, harm) -> None:
    newest = storage / "checkpoints/step-16.gen-1"
    assert list_loadable_checkpoints(storage.as_uri()) == ["step-16.gen-1", "step-8.gen-1"]
    assert str(newest / "shard-0") in harm(newest.as_uri()).what
    assert list_loadable_checkpoints(storage.as_uri()) == ["step-8.gen-1"]


def test_without_a_manifest_there_is_no_checkpoint(storage: Path) -> None:
    (storage / "checkpoints/step-16.gen-1/manifest.json").unlink()
    assert list_loadable_checkpoints(storage.as_uri()) == ["step-8.gen-1"]
    assert list_loadable_checkpoints((storage / "another").as_uri()) == []


def test_a_checkpoint_on_another_machine_is_not_changed() -> None:
    with pytest.raises(ConflictError, match="is not on this machine"):
        local_faults.flip_byte("s3://bucket/jobs/j/checkpoints/step-8.gen-1")
