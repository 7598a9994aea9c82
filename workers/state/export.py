"""Export the parameters of a checkpoint as one safetensors file.

python -m regroup.workers.state.export STORAGE_URI/checkpoints/step-S.gen-G OUT.safetensors
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from regroup.workers.contract.checkpoint_manifest import MANIFEST
from regroup.workers.state.checkpoint import CheckpointSource
from regroup.workers.state.state_error import StateError
from regroup.workers.state.tensor_names import is_parameter
from regroup.workers.storage import fsspec_storage


def export(uri: str, out: Path) -> int:
    """Write the parameters of the checkpoint at `uri` (a folder or an fsspec URI) and return the number of tensors.

    The call verifies every file against the manifest first.

    Raises:
        StateError: There is no finished checkpoint.
        StorageError: A file is missing or damaged.
    """
    content = fsspec_storage.read_bytes(fsspec_storage.join(uri, MANIFEST))
    if content is None:
        raise StateError(
            f"{uri} is not a finished checkpoint: it has no {MANIFEST}; list them with `regroup checkpoints JOB`"
        )
    manifest = json.loads(content)
    with tempfile.TemporaryDirectory(prefix="regroup-export-") as scratch:
        copy = Path(scratch, "checkpoint")  # files of older checkpoints are in folders next to it
        fsspec_storage.download(uri, copy, manifest["files"])
        source = CheckpointSource(copy)
        tensors = {
            name: torch.empty(shape, dtype=dtype)
            for name, (dtype, shape) in source.tensors().items()
            if is_parameter(name)
        }
        source.read(tensors)
    about = {"format": "pt", "job_id": str(manifest["job_id"]), "step": str(manifest["step"])}
    save_file(tensors, out, metadata=about)
    return len(tensors)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m regroup.workers.state.export", description=__doc__)
    parser.add_argument("checkpoint", help="folder or URI of a checkpoint")
    parser.add_argument("out", type=Path, help="safetensors file to write")
    args = parser.parse_args()
    try:
        count = export(args.checkpoint, args.out)
    except (StateError, fsspec_storage.StorageError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{args.out}: {count} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
