"""One line for each event of a job's history. Pure."""

import json
import re
from typing import Any

from regroup.api.live.formatting import layout_text
from regroup.service.domain.byte_text import bytes_text

_ID = re.compile(r"\b[0-9a-f]{56}\b")
"""Id of a node as Ray writes it."""


def describe_event(kind: str, data: dict[str, Any]) -> str:
    """Return the content of an event on one line."""
    match kind:
        case "state":
            return " ".join(str(data[key]) for key in ("to", "reason", "message") if data.get(key))
        case "generation":
            return (
                f"{data['number']}: {data['world_size']} ranks from step {data['start_step']}, {data.get('cause', '')}"
            )
        case "incident":
            rank = "" if data.get("rank") is None else f" rank {data['rank']}"
            return f"{data.get('cause')}{rank} at step {data.get('at_step')}"
        case "relocated":
            left = ", ".join(data["former"].values())
            return f"to {', '.join(node['name'] for node in data['nodes'])}" + (f", from {left}" if left else "")
        case "trial" if "kept" in data:
            return f"{'chosen: ' + layout_text(data['kept']) if data['kept'] else 'stopped'}: {data['why']}"
        case "trial":
            took = "not tried" if data["measured_s"] is None else f"{data['measured_s']:.3g} s per step"
            return f"{data['number']} of {data['of']}, {layout_text(data['layout'])}: {took}"
        case "checkpoint" if data.get("written_bytes") is not None:
            written = f"{bytes_text(data['written_bytes'])} written of {bytes_text(data['size_bytes'])}"
            return f"step {data['step']}: {written}"
        case "checkpoint" | "checkpoint_removed":
            return f"step {data['step']}"
        case "stragglers":
            named = [f"rank {each['rank']} {each['work_s']:.3g} s per step" for each in data["ranks"]]
            return ", ".join(named) + f", others {data['ranks'][0]['usual_s']:.3g} s" if named else "none any more"
        case "note" if "launcher" in data:
            slower = f": {data['why']}" if data.get("why") else ""
            user = f", user {data['user']}" if data.get("user", -1) >= 0 else ""
            return f"{data.get('host')}: imports {data['import_s']:.1f} s, launcher {data['launcher']}{user}{slower}"
        case "note" if data.get("kind") == "environment":
            how = "installed" if data["installed"] else "found"
            return f"{data['node']} {how} {data['python']} in {data['seconds']:.1f} s"
        case "note" if data.get("kind") == "state_restored" and "received_bytes" in data:
            received, needed = bytes_text(data["received_bytes"]), bytes_text(data["minimum_bytes"])
            traffic = f"{received} received, {needed} needed from elsewhere"
            memory = f"memory {bytes_text(data['memory_bytes'])}, shards {bytes_text(data['own_bytes'])}"
            return f"{data['node']} restored in {data['seconds']:.2f} s: {traffic}, {memory}"
        case _:
            return " ".join(f"{key}={_plain(value)}" for key, value in data.items() if value is not None)


def _plain(value: object) -> str:
    """Return a value as text: JSON if it has parts, and the beginning of an id of Ray."""
    if isinstance(value, str):
        return f"{value[:8]}…" if _ID.fullmatch(value) else value
    if isinstance(value, float):
        return f"{value:.4g}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _ID.sub(lambda found: f"{found[0][:8]}…", text)
