"""Whether checkpoints in a folder of this machine are whole: every file of the manifest, its size, its checksum."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_MANIFEST = "manifest.json"


def list_loadable_checkpoints(storage_uri: str) -> list[str]:
    """Names of the checkpoints in a job's storage that verify; none where it is not on this machine."""
    place = urlsplit(storage_uri)
    if place.scheme not in ("file", ""):
        return []
    folders = Path(place.path, "checkpoints").glob(f"*/{_MANIFEST}")
    return sorted(manifest.parent.name for manifest in folders if _is_loadable(manifest))


def _is_loadable(manifest: Path) -> bool:
    try:
        files = json.loads(manifest.read_text())["files"]
        return all(_is_intact(manifest.parent / entry["name"], entry) for entry in files)
    except (OSError, ValueError):  # given up by retention, or damaged
        return False


def _is_intact(path: Path, entry: Mapping[str, Any]) -> bool:
    data = path.read_bytes()
    return (len(data), zlib.crc32(data)) == (entry["size_bytes"], entry["crc32"])
