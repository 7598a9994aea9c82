"""The parameters of a checkpoint as one safetensors file. `python -m regroup.workers.state.export URI FILE`.

Runs where torch is, apart from the command line that calls it. Prints one JSON line about the file.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from regroup.workers.node.storage import StorageError, download, join, read_bytes
from regroup.workers.state.checkpoint import CheckpointSource


def export(uri: str, target: Path) -> dict[str, Any]:
    """Write the parameters of the checkpoint at `uri`, under their canonical names, without optimizer state.

    Returns:
        `path`, `step`, `tensors`, `parameters` (count) and `size_bytes`.

    Raises:
        StorageError: no manifest, or a file that is not as the manifest says.
    """
    found = read_bytes(join(uri, "manifest.json"))
    if found is None:
        raise StorageError(f"{uri} holds no manifest.json: it is no finished checkpoint")
    manifest: dict[str, Any] = json.loads(found)
    with tempfile.TemporaryDirectory(prefix="regroup-export-") as scratch:
        directory = Path(scratch)
        download(uri, directory, manifest["files"])
        source = CheckpointSource(directory)
        tensors = {
            name: torch.empty(shape, dtype=dtype)
            for name, (dtype, shape) in source.tensors().items()
            if not name.startswith("optim.")
        }
        source.read(tensors)
    origin = {name: str(manifest[name]) for name in ("job_id", "step", "generation") if name in manifest}
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target, metadata={"format": "pt", **origin})
    return {
        "path": str(target),
        "step": manifest.get("step"),
        "tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "size_bytes": target.stat().st_size,
    }


if __name__ == "__main__":
    try:
        print(json.dumps(export(sys.argv[1], Path(sys.argv[2]))))
    except (StorageError, OSError) as error:
        sys.exit(f"{error}")
