"""Checkpoints from snapshots, as an agent and its savers write them. Tasks of `agent_double.py`, which imports this."""

import base64
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regroup.workers.agent.checkpoints.node_write import NodeWrite
from regroup.workers.contract.checkpoint_manifest import MANIFEST, PIECES, Pieces, merge, unpack_pieces
from regroup.workers.contract.planned_shards import unpack_plan
from regroup.workers.state.checkpoint import write_metadata
from regroup.workers.state.checkpoint_plan import plan_shards
from regroup.workers.storage import fsspec_storage

SAVE, FINISH = "shard_writer:save_shards", "shard_writer:finish"
"""Targets of tasks."""


def save_shards(args: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
    """Write the shards in `fds` to `directory`, a part of a checkpoint.

    Args:
        args: those of `plan_shards`; `directory`; `base`, the folder of the former checkpoint, may be absent.
        fds: snapshots.
    """
    ranks = [shard["rank"] for shard in args["shards"]]
    containers, plan = (os.memfd_create(name) for name in ("containers", "plan"))
    result = plan_shards({"shards": args["shards"], "differing": args["differing"]}, [*fds, containers, plan])
    planned = unpack_plan(fsspec_storage.read_all(plan, 1 << 30), len(ranks))
    base = args.get("base", "")
    former = unpack_pieces(Path(base, PIECES).read_bytes()) if base else Pieces({}, ())
    write = NodeWrite(args["directory"], planned, ranks, fds, containers, former, Path(base).name)
    packed = write.run().packed()
    os.close(containers)
    os.close(plan)
    return {**result, "pieces": base64.b64encode(packed).decode()}


def finish(args: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
    """Write the metadata, the list of pieces and the manifest of a checkpoint to `directory`.

    Args:
        args: `directory`; `step` may be absent.
        fds: file with the JSON list of the results of `save_shards`.
    """
    parts = json.loads(fsspec_storage.read_all(fds[0], 1 << 30))
    packed = merge([unpack_pieces(base64.b64decode(part["pieces"])) for part in parts]).packed()
    fd = os.memfd_create("pieces")
    fsspec_storage.write_all(fd, packed)
    done = write_metadata(args, [fd])
    os.close(fd)
    directory = Path(args["directory"])
    (directory / PIECES).write_bytes(packed)
    older = [directory / name for name in unpack_pieces(packed).files if name.startswith("../")]
    files = [
        {
            "name": os.path.relpath(path, directory),
            "size_bytes": path.stat().st_size,
            "crc32": zlib.crc32(path.read_bytes()),
        }
        for path in (*sorted(directory.iterdir()), *older)
    ]
    manifest = {"job_id": "test", "step": args.get("step", 0), "files": files}
    (directory / MANIFEST).write_text(json.dumps(manifest))
    return done
