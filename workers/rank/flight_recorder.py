"""The collectives that this rank entered last, for its agent to ask for when ranks wait for each other.

torch's flight recorder notes them anyway, for gloo and for NCCL, so a step costs nothing more. A thread of its own
answers, because the main thread of a rank that waits is inside of a collective. It needs the interpreter: a rank that
never lets go of it does not answer, nor does one that is stopped. Then its stacks, or its state in the kernel, tell.
"""

import _thread
import json
import os
from collections.abc import Mapping
from typing import Any

from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d

NEWEST = 32
"""So many are told, the oldest first."""
_MAX_SHAPES = 4
_COMPLETED = frozenset({"completed"})
_UNTITLED = frozenset({"undefined"})


def limit_buffer(device: str) -> None:
    """Without a GPU nobody else reads what is recorded: so much is told soon. Call it before there is any group."""
    if device == "cpu":
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(2 * NEWEST))


def start_responder(fd: int) -> None:
    """Write the newest collectives to the packet socket `fd` whenever a packet comes, until its other end is closed."""
    _thread.start_new_thread(_respond, (fd,))  # unlike `threading`, it adds nothing that a program could find there


def recent_collectives() -> list[dict[str, Any]]:
    """The last collectives of all groups, in the order they were entered: `group` and `first_rank`, which together name
    the group, `title` (may be empty), `sequence` (from 1 on, per group), `name`, `shapes`, `types`, and whether it
    `is_over`. Empty where torch records nothing."""
    entries: list[Mapping[str, Any]] = []
    for recorder in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        if (dump := getattr(_distributed_c10d, recorder, None)) is not None:
            entries += json.loads(dump(True, False)).get("entries", [])
    collectives = [entry for entry in entries if not entry.get("is_p2p")]
    collectives.sort(key=lambda entry: entry["time_created_ns"])
    first_ranks = _first_ranks()
    return [_to_json(entry, first_ranks) for entry in collectives[-NEWEST:]]


def _to_json(entry: Mapping[str, Any], first_ranks: Mapping[str, int]) -> dict[str, Any]:
    group, title = entry["process_group"]
    backend, _, name = str(entry["profiling_name"]).partition(":")
    return {
        "group": f"{backend}:{group}",  # a group may have two backends, and each counts for itself
        "first_rank": first_ranks.get(group, -1),
        "title": "" if title in _UNTITLED else title,
        "sequence": entry["collective_seq_id"],
        "name": name,
        "shapes": entry["input_sizes"][:_MAX_SHAPES],
        "types": entry["input_dtypes"][:_MAX_SHAPES],
        "is_over": bool(entry["retired"]) or entry["state"] in _COMPLETED,
    }


def _first_ranks() -> dict[str, int]:
    """Name of a group of this rank → its smallest rank: groups that were split off together may share a name."""
    world = distributed_c10d._world  # pyright: ignore[reportPrivateUsage]
    # Groups that were split off without this rank have ranks here too, and no name.
    of_ours = [(world.pg_names.get(group), ranks) for group, ranks in list(world.pg_group_ranks.items())]
    return {name: min(ranks) for name, ranks in of_ours if name is not None and ranks}


def _respond(fd: int) -> None:
    try:
        while os.read(fd, 1):
            os.write(fd, json.dumps(recent_collectives()).encode())
    except Exception:
        return  # whoever asked hears nothing, and the rank goes on as if nobody had asked
