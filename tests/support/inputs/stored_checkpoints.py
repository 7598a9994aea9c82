"""Checkpoints in durable storage, as agents write them: files, and a manifest with their sizes and checksums."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

FILES: Mapping[str, bytes] = {
    "__0_0.distcp": bytes(range(256)) * 64,
    "__1_0.distcp": b"\x07" * 5000,
    "facts-0.json": b'{"world_size": 2}',
    ".metadata": b"metadata",
}


def write_checkpoint(
    storage_uri: str, step: int, files: Mapping[str, bytes] = FILES, generation: int = 1
) -> dict[str, Any]:
    """Write a checkpoint below the storage of a job; return the data of the supervisor's event about it."""
    uri = f"{storage_uri}/checkpoints/step-{step}.gen-{generation}"
    folder = folder_of(uri)
    folder.mkdir(parents=True)
    entries: list[dict[str, Any]] = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        entries.append({"name": name, "size_bytes": len(content), "crc32": zlib.crc32(content)})
    (folder / "manifest.json").write_text(json.dumps({"step": step, "generation": generation, "files": entries}))
    size_bytes = sum(map(len, files.values()))
    about = {"uri": uri, "size_bytes": size_bytes, "files": len(files), "duration_s": 1.5}
    return {"step": step, "generation": generation, **about}


def folder_of(uri: str) -> Path:
    """Return the folder of a `file:` URI."""
    return Path(unquote(urlsplit(uri).path))
