"""Durable storage on S3: a download equals the upload, or is refused."""

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from regroup.workers.environment.process_env import scrubbed_environment
from regroup.workers.storage import fsspec_storage
from tests.support.servers.s3 import ObjectStorage


@pytest.fixture
def root(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a fresh folder in the bucket, with credentials in the environment as an agent has them."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.uri}/{uuid.uuid4().hex}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create the files of a saver: one larger than a chunk, one in a folder, and an empty one."""
    made = tmp_path / "made"
    (made / "below").mkdir(parents=True)
    (made / "__0_0.distcp").write_bytes(bytes(range(256)) * 40_000)
    (made / "below" / "facts.json").write_text("{}")
    (made / "empty").touch()
    return made


def another_node(uri: str) -> tuple[Any, str]:
    """Open the same storage without any cache, as another process would."""
    return fsspec.core.url_to_fs(uri, skip_instance_cache=True, use_listings_cache=False)


def test_a_folder_comes_back_as_it_went(root: str, folder: Path, tmp_path: Path) -> None:
    files = fsspec_storage.upload(folder, f"{root}/checkpoints/step-1.gen-1")
    assert [entry["name"] for entry in files] == ["__0_0.distcp", "below/facts.json", "empty"]
    fsspec_storage.download(f"{root}/checkpoints/step-1.gen-1", tmp_path / "back", files)
    for entry in files:
        assert (tmp_path / "back" / entry["name"]).read_bytes() == (folder / entry["name"]).read_bytes()


@pytest.mark.parametrize("content", [b"short", b"altered!" * 1_280_000, None])
def test_what_is_damaged_or_missing_is_refused_by_name(
    root: str, folder: Path, tmp_path: Path, content: bytes | None
) -> None:
    files = fsspec_storage.upload(folder, root)
    fs, path = another_node(f"{root}/__0_0.distcp")
    if content is None:
        fs.rm(path)
    else:
        fs.pipe_file(path, content)
    with pytest.raises(
        fsspec_storage.StorageError, match=r"__0_0\.distcp is (damaged|named in the manifest but missing)"
    ):
        fsspec_storage.download(root, tmp_path / "back", files)


def test_small_files_and_what_does_not_exist(root: str) -> None:
    assert fsspec_storage.read_bytes(f"{root}/manifest.json") is None
    fsspec_storage.write_bytes(f"{root}/manifest.json", b"{}")
    fsspec_storage.write_bytes(f"{root}/manifest.json", b"{1}")
    assert fsspec_storage.read_bytes(f"{root}/manifest.json") == b"{1}"
    assert fsspec_storage.local_path(root) is None


def test_folders_that_another_node_makes_and_removes_are_seen(root: str) -> None:
    assert fsspec_storage.folders(f"{root}/checkpoints") == []
    fsspec_storage.write_bytes(f"{root}/checkpoints/step-1.gen-1/manifest.json", b"{}")
    fsspec_storage.write_bytes(f"{root}/checkpoints/step-2.gen-1/manifest.json", b"{}")
    assert fsspec_storage.folders(f"{root}/checkpoints") == ["step-1.gen-1", "step-2.gen-1"]
    fs, path = another_node(f"{root}/checkpoints")
    fs.rm(f"{path}/step-1.gen-1", recursive=True)
    fs.pipe_file(f"{path}/step-3.gen-2/manifest.json", b"{}")
    assert fsspec_storage.folders(f"{root}/checkpoints") == ["step-2.gen-1", "step-3.gen-2"]


def test_removing_takes_what_other_nodes_wrote_too(root: str, folder: Path) -> None:
    fsspec_storage.upload(folder, f"{root}/step-1")
    assert fsspec_storage.folders(root) == ["step-1"]
    assert fsspec_storage.folders(f"{root}/step-1") == ["below"]
    fs, path = another_node(f"{root}/step-1")
    fs.pipe_file(f"{path}/__1_0.distcp", b"from rank 1")
    fsspec_storage.write_bytes(f"{root}/step-10/kept", b"")
    fsspec_storage.remove(f"{root}/step-1")
    assert fs.find(path) == []
    assert fsspec_storage.folders(root) == ["step-10"]
    fsspec_storage.remove(f"{root}/step-1")


def test_a_probe_leaves_nothing(root: str) -> None:
    fsspec_storage.check_writable(root)
    fs, path = another_node(root)
    assert fs.find(path) == []


def test_a_missing_bucket_is_not_created(root: str) -> None:
    uri = "s3://regroup-mistyped/jobs"
    with pytest.raises(fsspec_storage.StorageError, match=f"{uri!r} is not writable"):
        fsspec_storage.check_writable(uri)
    fs, _ = another_node(uri)
    assert not fs.exists("regroup-mistyped")


def test_ranks_do_not_inherit_the_credentials(root: str, s3: ObjectStorage) -> None:
    assert not set(s3.environment) & set(scrubbed_environment({}))
    assert scrubbed_environment({"AWS_PROFILE": "asked-for"})["AWS_PROFILE"] == "asked-for"
