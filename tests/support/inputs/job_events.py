"""Complete data of job events, from the fields that a test names."""

from collections.abc import Mapping
from typing import Any

_PLACE = {"node_name": "a", "address": "127.0.0.1", "local_rank": 0, "device": 0}
_COUNTED = ("duration_s", "loss", "tokens", "samples", "samples_hash", "learning_rate", "grad_norm")


def event_data(kind: str, generation: int, time_s: float, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of an event with a value for each required field that `data` omits."""
    if kind == "step":
        return {"generation": generation, "time_s": time_s, **dict.fromkeys(_COUNTED), **data}
    if kind == "incident":
        return {"reason": "rank_exit", **data}
    if kind == "generation":
        return {**data, "ranks": [{**_PLACE, **place} for place in data["ranks"]]}
    return dict(data)
