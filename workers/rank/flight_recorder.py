"""The most recent collectives of this rank, which its agent requests when ranks wait for each other.

torch's flight recorder keeps them anyway, for gloo and NCCL, so this adds no cost to a step. A separate thread answers,
because the main thread of a waiting rank is inside a collective. The thread needs the GIL: a rank that holds the GIL,
or a stopped rank, does not answer. Use its stacks or its kernel state then.
"""

import _thread
import json
import os
from collections.abc import Mapping
from typing import Any

from regroup.workers.torch_internals.groups import first_ranks, limit_recorder, recorded_collectives

NEWEST = 32
"""Number of collectives in an answer, oldest first."""
_MAX_SHAPES = 4
_COMPLETED = frozenset({"completed"})
_UNTITLED = frozenset({"undefined"})


def limit_buffer(device: str) -> None:
    """Limit the recorder's buffer on CPU ranks, where only this module reads it. Call this before any group exists."""
    if device == "cpu":
        limit_recorder(2 * NEWEST)


def start_responder(fd: int) -> None:
    """Answer each packet on the socket `fd` with the recent collectives, until the other end is closed."""
    _thread.start_new_thread(_respond, (fd,))  # unlike `threading`, this adds nothing visible to the program


def recent_collectives() -> list[dict[str, Any]]:
    """Return the most recent collectives of all groups, in the order in which they started.

    `group` and `first_rank` together identify the group. Other keys: `title` (may be empty), `sequence` (from 1, per
    group), `name`, `shapes`, `types`, and `is_over`. The list is empty where torch records nothing.
    """
    collectives = [entry for entry in recorded_collectives() if not entry.get("is_p2p")]
    collectives.sort(key=lambda entry: entry["time_created_ns"])
    firsts = first_ranks()
    return [_to_json(entry, firsts) for entry in collectives[-NEWEST:]]


def _to_json(entry: Mapping[str, Any], firsts: Mapping[str, int]) -> dict[str, Any]:
    group, title = entry["process_group"]
    backend, _, name = str(entry["profiling_name"]).partition(":")
    return {
        "group": f"{backend}:{group}",  # a group may have two backends, each with its own sequence numbers
        "first_rank": firsts.get(group, -1),
        "title": "" if title in _UNTITLED else title,
        "sequence": entry["collective_seq_id"],
        "name": name,
        "shapes": entry["input_sizes"][:_MAX_SHAPES],
        "types": entry["input_dtypes"][:_MAX_SHAPES],
        "is_over": bool(entry["retired"]) or entry["state"] in _COMPLETED,
    }


def _respond(fd: int) -> None:
    try:
        while os.read(fd, 1):
            os.write(fd, json.dumps(recent_collectives()).encode())
    except Exception:
        return  # the agent receives no answer; training continues
