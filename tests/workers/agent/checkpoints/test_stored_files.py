"""Only an intact manifest and an intact list of pieces are read."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.agent.checkpoints.stored_files import read_manifest, read_pieces
from regroup.workers.contract.checkpoint_manifest import PIECES, FileChunks, Pieces
from regroup.workers.storage.fsspec_storage import StorageError

LIST = Pieces({"__0_0.distcp": FileChunks(5, (7,))}, ())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    packed = LIST.packed()
    (tmp_path / PIECES).write_bytes(packed)
    entry = {"name": PIECES, "size_bytes": len(packed), "crc32": zlib.crc32(packed)}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [entry]}))
    return tmp_path


def test_an_intact_checkpoint_is_read(checkpoint: Path) -> None:
    assert read_pieces(str(checkpoint), read_manifest(str(checkpoint))) == LIST


@pytest.mark.parametrize("content", [[], {"files": None}, {"files": [{"name": "x"}]}, {}])
def test_a_damaged_manifest_is_refused(checkpoint: Path, content: Any) -> None:
    (checkpoint / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"manifest\.json is damaged"):
        read_manifest(str(checkpoint))


def test_a_damaged_or_missing_list_is_refused(checkpoint: Path) -> None:
    manifest = read_manifest(str(checkpoint))
    (checkpoint / PIECES).write_bytes(LIST.packed()[:-1])
    with pytest.raises(StorageError, match=r"pieces\.json\.zz is damaged"):
        read_pieces(str(checkpoint), manifest)
    (checkpoint / PIECES).unlink()
    with pytest.raises(StorageError, match=r"pieces\.json\.zz is named in the manifest but missing"):
        read_pieces(str(checkpoint), manifest)
    with pytest.raises(StorageError, match=r"lists no file pieces\.json\.zz"):
        read_pieces(str(checkpoint), {"files": []})
    no_list = b"[]"
    entry = {"name": PIECES, "size_bytes": 2, "crc32": zlib.crc32(no_list)}
    (checkpoint / PIECES).write_bytes(no_list)
    with pytest.raises(StorageError, match="list of pieces is damaged"):
        read_pieces(str(checkpoint), {"files": [entry]})
