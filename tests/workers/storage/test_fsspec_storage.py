"""Durable storage in a folder: the names of a manifest."""

from pathlib import Path

import pytest

from regroup.workers.storage.fsspec_storage import StorageError, download


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/tmp/outside"])
def test_a_manifest_cannot_name_files_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "stored").mkdir()
    (tmp_path / "outside").write_bytes(b"x")
    with pytest.raises(StorageError, match="outside of it"):
        download((tmp_path / "stored").as_uri(), tmp_path / "target", [{"name": name, "size_bytes": 1, "crc32": 0}])
    assert list((tmp_path / "target").iterdir()) == []
